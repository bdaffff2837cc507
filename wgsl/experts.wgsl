// Products of a small batch's tokens with their chosen experts' matrices, by the code of matvec.wgsl. W stacks STACK
// matrices (EXPERTS x ROWS, COLS); an expert's result is its rows in each of them, end to end.
// ROUNDED_BEFORE: quantize_rows.wgsl has rounded the x of several tokens. A token alone has few workgroups; each rounds x.
// SUM 0: y[m, k] = W[expert k of m] x[m]; grid (STACK * ROWS / (TR * R), USED, tokens).
// SUM 1: y[m] += sum over k of weights[m, k] * W[expert k of m] x[m, k]; grid (ROWS / (TR * R), 1, tokens). Each row is
// one dot product: with the experts' rows end to end, and the weighted x[m, 0], x[m, 1], ... end to end.
#param EXPERTS
#param ROWS // rows of one expert in one matrix
#param STACK // matrices in W
#param USED // experts of a token
#param SUM
#include "matvec.wgsl"
