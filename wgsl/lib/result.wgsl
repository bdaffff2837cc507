// A kernel's result, (n, y_stride): numbers of type Value, f16 or f32.
#if Y16
#param F16
alias Value = f16;
#else
alias Value = f32;
#endif
@bind var<storage, read_write> y: array<Value>;
