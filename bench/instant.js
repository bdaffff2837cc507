// Runs in the engine's worker, before its own code: the GPU does nothing, since dispatches have no workgroups.
{
  const { dispatchWorkgroups } = GPUComputePassEncoder.prototype;
  GPUComputePassEncoder.prototype.dispatchWorkgroups = function () {
    return dispatchWorkgroups.call(this, 0, 0, 0);
  };
}
