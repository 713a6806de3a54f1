"""Writes opencv_witness.npz: images, and what the reorg layer of OpenCV's Darknet importer makes of
them. Run it with a Python that has opencv-python-headless 4.x:

    python tests/ops/make_opencv_witness.py

Case NUMBER of operator OP has OP/NUMBER/attrs (JSON), OP/NUMBER/in/0 and OP/NUMBER/out/0.
"""

import json
from pathlib import Path

import cv2
import numpy as np

NETWORK = "[net]\nwidth={w}\nheight={h}\nchannels={c}\n[reorg]\nstride={s}\n"
CASES = [((1, 4, 6, 6), 2), ((2, 8, 2, 4), 2), ((1, 9, 3, 6), 3), ((1, 12, 4, 8), 2)]


def reorganised(x, stride):
    _, c, h, w = x.shape
    text = NETWORK.format(c=c, h=h, w=w, s=stride)
    net = cv2.dnn.readNetFromDarknet(np.frombuffer(text.encode(), np.uint8))
    images = []
    for image in x:
        net.setInput(image[None])
        images.append(net.forward().copy())
    return np.concatenate(images)


def main():
    rng = np.random.default_rng(5)
    rows = {}
    for number, (shape, stride) in enumerate(CASES):
        x = rng.uniform(-2, 2, shape).astype("float32")
        made = reorganised(x, stride)
        # Elements only move, so the transpose moves them back.
        for op, given, result in (("yolo_reorg", x, made), ("_yolo_reorg_grad", made, x)):
            rows[f"{op}/{number}/attrs"] = np.array(json.dumps({"stride": stride}))
            rows[f"{op}/{number}/in/0"] = given
            rows[f"{op}/{number}/out/0"] = result
    np.savez_compressed(Path(__file__).with_name("opencv_witness.npz"), **rows)
    print(len(CASES), "cases, OpenCV", cv2.__version__)


if __name__ == "__main__":
    main()
