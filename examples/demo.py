"""The main job on a small trained network: import, optimise, compile, run on held-out samples.

python examples/demo.py
"""

from weft.tools.demo import main

if __name__ == "__main__":
    main()
