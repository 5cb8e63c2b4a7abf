"""The metric stream and its sinks: console, `metrics.jsonl`, `log.txt`, TensorBoard; throughput; cards; dllogger's
calls, and anybody's logs; plots and pages.

This room is told numbers and shows or stores them. It knows no model, no data, no device and no training
loop, and it imports no torch. Whoever owns the run builds one `MetricStream`; ranks other than 0 build one
without sinks, which does nothing.

Metric names are `<group>.<name>`: `train.loss train.lr train.grad_norm train.ips train.tokens_per_second
train.tokens_per_second_per_device train.step_time train.data_time train.compute_time train.busy_time.<place>
train.wait_time train.own_time train.own_time.<rank> train.achieved_flops train.utilisation train.memory`,
`val.loss val.<metric>`, `summary.<name>`. Times are in seconds, memory in bytes, utilisation from 0 to 1.
"""
