/* A C library: one function of it, the f32 weight gradient of two axes, channels last.

   cc -O2 -shared -fPIC c_library.c -o c_library.so
   convgrad conformance ./c_library.so:weight_gradient --signature \
       "f32 NXC src diff_dst out N H W OH OW KH KW C O SH SW DH DW PH PW" */

void weight_gradient(const float *src, const float *diff_dst, float *out, long N, long H, long W, long OH, long OW,
                     long KH, long KW, long C, long O, long SH, long SW, long DH, long DW, long PH, long PW)
{
    for (long k = 0; k < KH * KW * C * O; k++) {
        long o = k % O, c = k / O % C, kw = k / O / C % KW, kh = k / O / C / KW;
        float sum = 0;
        for (long n = 0; n < N; n++)
            for (long p = 0; p < OH * OW; p++) {
                long h = p / OW * SH + kh * DH - PH, w = p % OW * SW + kw * DW - PW;
                if (h >= 0 && h < H && w >= 0 && w < W)
                    sum += src[((n * H + h) * W + w) * C + c] * diff_dst[(n * OH * OW + p) * O + o];
            }
        out[k] = sum;
    }
}
