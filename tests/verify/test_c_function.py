"""Functions of a C library, called by a signature: arguments, layouts, cases that are not served, crashes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import convgrad
from convgrad.errors import NotationError, UnsupportedError
from convgrad.verify import check
from convgrad.verify.c_function import CFunction, read_signature
from tests.support.verify_helpers import Run, here, junit, said_by_the_command  # noqa: F401 - fixtures

SOURCE = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void gradient(const float *src, const float *diff_dst, float *out, int64_t N, int64_t W, int64_t OW, int64_t K,
                     int64_t C, int64_t O, int32_t S, int32_t P)
{
    for (int64_t k = 0; k < K; k++)
        for (int64_t c = 0; c < C; c++)
            for (int64_t o = 0; o < O; o++) {
                float sum = 0;
                for (int64_t n = 0; n < N; n++)
                    for (int64_t p = 0; p < OW; p++) {
                        int64_t i = p * S + k - P;
                        if (i >= 0 && i < W)
                            sum += src[(n * W + i) * C + c] * diff_dst[(n * OW + p) * O + o];
                    }
                out[(k * C + c) * O + o] = sum;
            }
}
#define ARGUMENTS const float *src, const float *diff_dst, float *out, int64_t N, int64_t W, int64_t OW, int64_t K, \\
    int64_t C, int64_t O, int32_t S, int32_t P
void right(ARGUMENTS) { gradient(src, diff_dst, out, N, W, OW, K, C, O, S, P); }
void wrong(ARGUMENTS) { gradient(src, diff_dst, out, N, W, OW, K, C, O, S, P + 1); }
void crash(ARGUMENTS) { if (N == 2) abort(); gradient(src, diff_dst, out, N, W, OW, K, C, O, S, P); }
void forgets(ARGUMENTS)
{
    static int calls;
    gradient(src, diff_dst, out, N - (++calls % 4 == 0), W, OW, K, C, O, S, P);
}
void leaves(ARGUMENTS)
{
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            FILE *file = fopen("started", "w");
            fprintf(file, "%d", getpid());
            fclose(file);
            sleep(3600);
        }
        _exit(0);
    }
    wait(NULL);
    while (access("started", F_OK))
        usleep(1000);
    gradient(src, diff_dst, out, N, W, OW, K, C, O, S, P);
}
void sizes(const float *src, const float *weights, const float *bias, float *out, int64_t N, int64_t G, int64_t C,
           int64_t O, int32_t H, int32_t W, int32_t OH, int32_t OW, int32_t KH, int32_t KW, int64_t SH, int64_t SW,
           int64_t DH, int64_t DW, int64_t PH, int64_t PW, int64_t QH, int64_t QW)
{
    const int64_t given[] = {N, G, C, O, H, W, OH, OW, KH, KW, SH, SW, DH, DW, PH, PW, QH, QW};
    for (int n = 0; n < 18; n++)
        out[n] = given[n];
    out[18] = src[1] + weights[1] + bias[1];
}
"""
GRADIENT = "f32 NXC src diff_dst out N W OW KW C O int32 SW PW"
SIZES = "src weights bias out N G C O int32 H W OH OW KH KW int64 SH SW DH DW PH PW QH QW"
CASES = ("BWD_W f32 NXC mb4ic8iw50oc8ow50kw3pw1", "BWD_W f32 NCX mb2ic3iw33oc5ow17kw5sw2pw2")
UNSERVED = {
    "BWD_D f32 NXC mb1ic3iw9oc5ow9kw3pw1": "is for src, diff_dst, and the case has diff_dst, weights",
    "deconv BWD_W f32 NXC mb1ic3iw9oc5ow9kw3pw1": "is for src, diff_dst",
    "BWD_W bf16 NXC mb1ic3iw9oc5ow9kw3pw1": "is for f32, and the case has bf16",
    "BWD_W f32 NXC mb1ic3ih9oc5oh9kh3ph1": "has no size of the axis H",
    "BWD_W f32 NXC mb1ic3iw9oc5ow7kw3dw1pw1": "has no DW, which is 2 in the case",
    "BWD_W f32 NXC g2mb1ic4iw9oc6ow9kw3pw1": "has no G, which is 2 in the case",
}


@pytest.fixture(scope="module", name="library")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("library")
    (folder / "conv.c").write_text(SOURCE)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "conv.c", "-o", "libconv.so"], cwd=folder, check=True)
    return folder / "libconv.so"


def test_a_right_and_a_wrong_function(library: Path, said: Run) -> None:
    """Arrays get the declared layout, for cases of any layout."""
    code, out, _ = said(*CASES, "--call", f"{library}:right", "--signature", GRADIENT)
    assert (code, out.splitlines()[-1].startswith("2 cases: 2 ok")) == (0, True)
    assert "right in a process of its own" in out
    code, out, _ = said(*CASES, "--call", f"{library}:wrong", "--signature", GRADIENT, "--no-isolate")
    assert (code, out.count("pad too large by one"), "its own" in out) == (1, 2, False)
    assert out.count(f"--call {library}:wrong --signature '{GRADIENT}' --no-isolate\n") == 2


def test_a_crash_names_its_case(library: Path, said: Run) -> None:
    code, out, _ = said(*CASES, "--call", f"{library}:crash", "--signature", GRADIENT, "--junit", "report.xml")
    assert code == 1
    assert "mb2ic3iw33oc5ow17kw5sw2pw2_BWD_W_f32_NCX_OIX  WRONG: it crashed with SIGABRT" in out
    assert junit("report.xml") == {"tests": 2, "failures": 1, "errors": 0, "skipped": 0}


def test_a_function_that_forgets_an_image_now_and_then(library: Path, said: Run) -> None:
    words = CASES[0], "--call", f"{library}:forgets", "--signature", GRADIENT, "--repeat"
    assert said(*words, 3, "--no-isolate")[0] == 0
    code, out, _ = said(*words, 8)
    assert (code, "NOT REPEATABLE: call 4 of 8 differs from call 1" in out) == (4, True)
    assert "result    call 4 and 1 equal call: WRONG" in out
    assert "last image missing" in out


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are found on Linux")
def test_a_daemon_ends_with_the_command(library: Path, said: Run) -> None:
    assert said(CASES[0], "--call", f"{library}:leaves", "--signature", GRADIENT)[0] == 0
    assert not Path("/proc", Path("started").read_text()).exists()


def test_cases_that_a_signature_excludes(library: Path, said: Run) -> None:
    code, out, _ = said(CASES[0], *UNSERVED, "--call", f"{library}:right", "--signature", GRADIENT, "--verbose")
    assert (code, out.splitlines()[-1].startswith("7 cases: 1 ok, 6 not served")) == (0, True)
    for line, why in zip(out.splitlines()[2:], UNSERVED.values(), strict=False):
        assert f"NOT SERVED: the signature {why}" in line
    short = GRADIENT.replace(" SW", " SW=2").replace(" OW", "").replace(" PW", "")
    quickly = "--call", f"{library}:right", "--no-isolate", "--signature"
    code, out, _ = said(*CASES, *quickly, short, "--verbose")
    assert (code, "has SW=2, and the case has 1" in out, "has no PW, which is 2" in out) == (1, True, True)
    code, out, _ = said("BWD_W f32 NXC ic3iw9oc5ow10kw3pw1", *quickly, f"{short} PW")
    assert (code, "has SW=2" in out) == (1, True)
    code, out, _ = said("BWD_W f32 NXC ic3iw9oc5ow10kw3pw1", *quickly, "src diff_dst out N C O K W PW")
    assert (code, "neither OW nor QW, and equal pads give another extent" in out) == (1, True)


@pytest.mark.every(3)
@pytest.mark.parametrize(("size", "value"), {"N": 4, "C": 8, "O": 8, "KW": 3}.items())
def test_a_size_that_a_function_does_not_get_is_one(size: str, value: int, library: Path, said: Run) -> None:
    """Else a right function for one image, one channel or one tap would be called wrong, or read beyond its arrays."""
    rest = " ".join(word for word in GRADIENT.split() if word not in (size, "OW"))
    code, out, _ = said(CASES[0], "--call", f"{library}:right", "--signature", rest, "--verbose")
    assert (code, f"the signature has no {size}, which is {value} in the case" in out) == (1, True)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("layout", ["", "NXC "])
def test_operands_in_foreign_byte_order(layout: str, order: str, library: Path) -> None:
    """Functions get native numbers, also if the signature declares no layout."""
    src, diff = (np.random.default_rng(n).standard_normal((2, n, 3)).astype(f"{order}f4") for n in (6, 4))
    function = CFunction(f"{library}:right", f"f32 {layout}src diff_dst out N W OW K C O int32 S P")
    assert check("ConvolutionBackwardWeights", function, src, diff, weights_shape=(3, 3, 3)).ok


@pytest.mark.parametrize("operator", ["Convolution", "ConvTranspose"])
def test_each_size_is_passed(operator: str, library: Path) -> None:
    src, bias = np.arange(90, dtype=np.float32).reshape(1, 9, 5, 2), np.arange(4, dtype=np.float32)
    weights = np.arange(24, dtype=np.float32).reshape((3, 2, 2, 2) if operator == "ConvTranspose" else (3, 2, 1, 4))
    transposed = operator == "ConvTranspose"
    groups, layer = 2, {"strides": [2, 1], "dilations": [1, 2], "pads_begin": [1, 0], "pads_end": [2, 3]}
    layer |= {"groups": groups, "data_format": "NXC", "weights_format": "XOI" if transposed else "XIO"}
    expected = convgrad.run(operator, src, weights, bias, **layer)
    function = CFunction(f"{library}:sizes", "deconv " * transposed + SIZES)
    result = function(operator, src, weights, bias, **layer)
    assert result.shape == expected.shape
    values = [1, 2, 2, 4, 9, 5, *expected.shape[1:3], 3, 2, 2, 1, 1, 2, 1, 0, 2, 3, 3]
    assert result.reshape(-1)[:19].tolist() == values
    assert np.isnan(result.reshape(-1)[19:]).all()


@pytest.mark.parametrize(
    ("signature", "words"),
    [
        ("src weights N", "must have out once"),
        ("f32 NXC out N W C O K", "must have an operand, such as src; got"),
        ("src src out", "each operand at most once"),
        ("src weights out NHWC", "has the words .*; got 'NHWC'"),
        ("NXC:OXI src out", "got 'NXC:OXI'"),
    ],
)
def test_signatures_that_cannot_be_read(signature: str, words: str) -> None:
    with pytest.raises(NotationError, match=words):
        read_signature(signature)


def test_libraries_that_cannot_be_used(library: Path, said: Run) -> None:
    code, _, err = said(CASES[0], "--call", f"{library}:right")
    assert (code, "--call LIBRARY:FUNCTION and --signature go together" in err) == (2, True)
    code, _, err = said(CASES[0], "--call", "convgrad:run", "--signature", GRADIENT)
    assert (code, "--call LIBRARY:FUNCTION and --signature go together" in err) == (2, True)
    code, _, err = said(CASES[0], "--call", f"{library}:nothing", "--signature", GRADIENT)
    assert (code, "libconv.so:nothing cannot be loaded" in err) == (2, True)
    with pytest.raises(UnsupportedError, match=r"nowhere\.so:f cannot be loaded"):
        CFunction("nowhere.so:f", GRADIENT)
