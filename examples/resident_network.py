"""The network of plain_network.py, whose features stay on the device during the training.

That takes one line. Every epoch multiplies by the features and by their transpose, but they are
sent only once. Without acceleration, or without an OpenCL device, the program does the same:

    python -m clgemm.accel examples/resident_network.py [--hidden N] [--epochs N]
"""

from __future__ import annotations

from plain_network import main

import clgemm

if __name__ == "__main__":
    main(keep=clgemm.resident)
