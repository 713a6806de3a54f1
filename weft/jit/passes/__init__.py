"""Passes: functions that edit a graph in place and keep what it computes. `aliases` and `effects` tell what they may
do, `order` has their walks."""
