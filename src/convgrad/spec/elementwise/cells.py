"""Maps of a step of LSTM and GRU layers: from the sums of each gate to the next state, and their gradients."""

from __future__ import annotations

from convgrad.spec.elementwise import functions as f
from convgrad.spec.elementwise.arithmetic import Number, Operations
from convgrad.spec.elementwise.definition import Maps
from convgrad.spec.elementwise.maps import sigmoid_backward, tanh_backward

CELLS = Maps()


@CELLS.add()
def lstm_cell(
    m: Operations,
    h_i: Number,
    h_f: Number,
    h_g: Number,
    h_o: Number,
    x_i: Number,
    x_f: Number,
    x_g: Number,
    x_o: Number,
    c: Number,
) -> tuple[Number, ...]:
    """Return the next h and c and the gates, from the products of each gate with h and with the input."""
    i, forget, o = (f.sigmoid(m, h + x) for h, x in ((h_i, x_i), (h_f, x_f), (h_o, x_o)))
    g = f.tanh(m, h_g + x_g)
    c = forget * c + i * g
    return o * f.tanh(m, c), c, i, forget, g, o


@CELLS.add()
def lstm_cell_backward(
    m: Operations,
    of_output: Number,
    of_h: Number,
    of_c: Number,
    c: Number,
    next_c: Number,
    i: Number,
    forget: Number,
    g: Number,
    o: Number,
) -> tuple[Number, ...]:
    """Return the gradients of c and of the gates' sums, from those of the output, and of the next h and c."""
    t = f.tanh(m, next_c)
    of_h = of_output + of_h
    of_c = of_c + tanh_backward(m, of_h * o, t)
    of_gates = (
        sigmoid_backward(m, of_c * g, i),
        sigmoid_backward(m, of_c * c, forget),
        tanh_backward(m, of_c * i, g),
        sigmoid_backward(m, of_h * t, o),
    )
    return of_c * forget, *of_gates


@CELLS.add()
def gru_cell(
    m: Operations, h_r: Number, h_z: Number, h_n: Number, x_r: Number, x_z: Number, x_n: Number, h: Number
) -> tuple[Number, ...]:
    """Return the next h and what its gradient needs, from the products of each gate with h and with the input."""
    r, z = (f.sigmoid(m, of_h + of_x) for of_h, of_x in ((h_r, x_r), (h_z, x_z)))
    n = f.tanh(m, x_n + h_n * r)
    difference = h - n
    return difference * z + n, r, z, n, difference, h_n


@CELLS.add()
def gru_cell_backward(
    m: Operations,
    of_output: Number,
    of_h: Number,
    of_products: Number,
    r: Number,
    z: Number,
    n: Number,
    difference: Number,
    h_n: Number,
) -> tuple[Number, ...]:
    """Return the gradients of h, of the gates' products with the input, and of those with h.

    The gradient of the next h has parts: those of the output, of the next step, and of its products with h.
    """
    of_h = of_output + of_h + of_products
    kept = of_h * z
    of_n = tanh_backward(m, of_h - kept, n)
    of_r, of_z = sigmoid_backward(m, of_n * h_n, r), sigmoid_backward(m, of_h * difference, z)
    return kept, of_r, of_z, of_n, of_r, of_z, of_n * r
