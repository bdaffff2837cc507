// Activation functions of feed-forward layers: ACTIVATION(x), and gated: ACTIVATION(gate) * up.
#param LIMIT // of both factors (the gate's has no lower one), if it is not 0
#param UP_LIMIT // of "situ", the second factor's, if it is not 0
#if ACTIVATION == "situ"
fn bounded(x: f32, most: f32) -> f32 {
  return most * (1.0 - 2.0 / (1.0 + exp(2.0 * x / most))); // most * tanh(x / most)
}
#endif

fn gated(gate: f32, up: f32) -> f32 {
#if ACTIVATION == "swiglu_oai"
  let g = min(gate, 7.0); // gpt-oss clamps both inputs
  return g / (1.0 + exp(-1.702 * g)) * (clamp(up, -7.0, 7.0) + 1.0);
#else
#if ACTIVATION == "situ"
  let opened = bounded(gate, LIMIT) / (1.0 + exp(-gate));
#if UP_LIMIT
  return opened * bounded(up, UP_LIMIT);
#else
  return opened * up;
#endif
#else
#if ACTIVATION == "clamped_silu"
  let g = min(gate, LIMIT); // before SiLU
  return g / (1.0 + exp(-g)) * clamp(up, -LIMIT, LIMIT);
#else
#if LIMIT
  return min(activation(gate), LIMIT) * clamp(up, -LIMIT, LIMIT);
#else
  return activation(gate) * up;
#endif
#endif
#endif
#endif
}

fn activation(x: f32) -> f32 {
#if ACTIVATION == "xielu"
  // Huang and Schlag 2024; the factors are in Params
  let least = min(x, p.eps);
  let small = least * (1.0 + least * (0.5 + least / 6.0)); // exp() - 1 loses its digits near 0
  let power = select(exp(least) - 1.0, small, least > -0.01);
  return p.beta * x + select((power - x) * p.alpha_n, x * x * p.alpha_p, x > 0.0);
#else
#if ACTIVATION == "gelu"
  // tanh approximation (Hendrycks and Gimpel 2016); x / 2 * (1 + tanh(u)) = x / (1 + exp(-2 u))
  return x / (1.0 + exp(-1.5957691216057308 * x * (1.0 + 0.044715 * x * x)));
#else
#if ACTIVATION == "tanh"
  return 1.0 - 2.0 / (1.0 + exp(2.0 * x)); // the built-in tanh may overflow
#else
#if ACTIVATION == "relu2"
  return max(x, 0.0) * max(x, 0.0);
#else
#if ACTIVATION == "relu"
  return max(x, 0.0);
#else
#if ACTIVATION == "hard_sigmoid"
  return clamp((x + 3.0) / 6.0, 0.0, 1.0);
#else
#if ACTIVATION == "hard_swish"
  return x * clamp((x + 3.0) / 6.0, 0.0, 1.0);
#else
#if ACTIVATION == "sigmoid"
  return 1.0 / (1.0 + exp(-x));
#else
#if ACTIVATION == "gelu_quick"
  return x / (1.0 + exp(-1.702 * x));
#else
#if ACTIVATION == "softplus2"
  return max(x, 0.0) + log2(1.0 + exp2(-abs(x))); // log2(1 + 2^x), which may overflow
#else
#if ACTIVATION == "softplus"
  return max(x, 0.0) + log(1.0 + exp(-abs(x))); // exp(x) may overflow
#else
#if ACTIVATION == "gelu_erf"
  // 1 - erf(z) within 1.5e-7 (Abramowitz and Stegun 7.1.26)
  let z = abs(x) * 0.7071067811865476;
  let t = 1.0 / (1.0 + 0.3275911 * z);
  let series = 0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)));
  let tail = 0.5 * series * t * exp(-z * z);
  return x * select(1.0 - tail, tail, x < 0.0);
#else
  return x / (1.0 + exp(-x));
#endif
#endif
#endif
#endif
#endif
#endif
#endif
#endif
#endif
#endif
#endif
#endif
}
