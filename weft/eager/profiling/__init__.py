"""Which functions ran, how long and on what: recorded while someone asks, summed up in tables and written as traces."""
