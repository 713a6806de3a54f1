"""What is kept on disk of whole models, and the hash of the compiler that is part of every key."""
