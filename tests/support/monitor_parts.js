/** In a page: the monitor's figures and warnings, without an engine. */
export { Monitor, sampleOf } from "../../app/sdk/monitor.js";
export { Plot } from "../../app/ui/monitor/plot.js";
export { warningsOf } from "../../app/ui/monitor/warnings.js";
