"""Writes internal/gguf/testdata/blocks.gguf: blocks of every type that posttrain reads, with the numbers that gguf-py reads.

  pip install gguf==0.19.0
  python scripts/oracle/gguf_blocks.py internal/gguf/testdata

Also internal/gguf/grids.bin. For each type a tensor of its name, and NAME.f32 with gguf-py's numbers. f32 to q8_0 are
gguf-py's own encoding of source.f32, the others random bytes with finite scales.
"""

import pathlib
import sys

import numpy
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter, quants
from gguf.quants import dequantize, quantize

ENCODED = [Type.F32, Type.F16, Type.BF16, Type.Q8_0]
# Of a block: its bytes, and where its float16 scales are.
HALVES = {
    Type.Q4_0: (18, [0]), Type.Q4_1: (20, [0, 2]), Type.Q5_0: (22, [0]), Type.Q5_1: (24, [0, 2]),
    Type.Q2_K: (84, [80, 82]), Type.Q3_K: (110, [108]), Type.Q4_K: (144, [0, 2]), Type.Q5_K: (176, [0, 2]),
    Type.Q6_K: (210, [208]), Type.IQ2_XXS: (66, [0]), Type.IQ2_XS: (74, [0]), Type.IQ2_S: (82, [0]),
    Type.IQ3_XXS: (98, [0]), Type.IQ3_S: (110, [0]), Type.IQ1_S: (50, [0]), Type.IQ1_M: (56, []),
    Type.IQ4_NL: (18, [0]), Type.IQ4_XS: (136, [0]), Type.TQ1_0: (54, [52]), Type.TQ2_0: (66, [64]),
    Type.MXFP4: (17, []), Type.NVFP4: (36, []),
}  # fmt: skip
GRIDS = [quants.IQ2_XXS, quants.IQ2_XS, quants.IQ2_S, quants.IQ3_XXS, quants.IQ3_S, quants.IQ1_S]


def source(draw):
    """Four rows: small numbers; ties of rounding (k + 1/2 of a scale); one large number among zeros; subnormal ones."""
    x = draw.normal(0, 0.05, (4, 512)).astype(numpy.float32)
    x[1] = (draw.integers(-127, 127, 512) + 0.5).astype(numpy.float32) / 64
    x[1, ::32] = 127 / 64
    x[2] = 0
    x[2, 100] = -3e4
    x[3] *= 1e-6
    return x


def blocks(draw, kind, size, scales):
    """Random blocks, whose float16 scales are between -2 and 2."""
    b = draw.integers(0, 256, (8, size), dtype=numpy.uint8)
    for at in scales:
        b[:, at : at + 2] = draw.uniform(-2, 2, (8, 1)).astype(numpy.float16).view(numpy.uint8)
    if kind == Type.MXFP4:  # an exponent
        b[:, 0] = draw.integers(100, 150, 8)
        b[0, 0], b[1, 0] = 0, 1
    if kind == Type.IQ1_M:  # four bits of it in each of four words
        half = draw.uniform(-2, 2, 8).astype(numpy.float16).view(numpy.uint16)
        for i in range(4):
            b[:, 49 + 2 * i] = b[:, 49 + 2 * i] & 15 | (half >> 4 * i & 15).astype(numpy.uint8) << 4
    return b.reshape(4, -1)


def write_grids(path):
    """The grids of the types iq1 to iq3, a signed byte a number."""
    with open(path, "wb") as f:
        for kind in GRIDS:
            kind.init_grid()
            f.write(kind.grid.astype(numpy.int8).tobytes())


def main(out):
    write_grids(out.parent / "grids.bin")
    draw = numpy.random.default_rng(20)
    writer = GGUFWriter(out / "blocks.gguf", "blocks")
    writer.add_array("blocks.texts", ["", "ä b", "end"])
    writer.add_array("blocks.wholes", [3, -1, 2])
    writer.add_float32("blocks.float", 1e-5)
    writer.add_bool("blocks.flag", True)
    x = source(draw)
    writer.add_tensor("source.f32", x)
    for kind in ENCODED:
        data = quantize(x, kind)
        writer.add_tensor(kind.name, data, raw_dtype=kind)
        writer.add_tensor(f"{kind.name}.f32", dequantize(data, kind).astype(numpy.float32))
    for kind, (size, scales) in HALVES.items():
        data = blocks(draw, kind, size, scales)
        writer.add_tensor(kind.name, data, raw_dtype=kind)
        writer.add_tensor(f"{kind.name}.f32", dequantize(data, kind).astype(numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
