//! Options of flow control, named as kube-apiserver's.

use anyhow::ensure;
use orlop_server::FlowControlOptions;

/// Flow control.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Flow control")]
pub(super) struct FlowControlFlags {
    /// Queue requests by priority and fairness, as FlowSchemas and PriorityLevelConfigurations say. Otherwise requests
    /// beyond the limits below are answered with 429.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", value_name = "BOOL")]
    enable_priority_and_fairness: bool,

    /// Maximum number of reading requests in flight. With priority and fairness, the sum of this and the next is the
    /// number of seats that the priority levels share; without, 0 is no limit.
    #[arg(long, default_value_t = 400, value_name = "NUMBER")]
    max_requests_inflight: usize,

    /// Maximum number of mutating requests in flight.
    #[arg(long, default_value_t = 200, value_name = "NUMBER")]
    max_mutating_requests_inflight: usize,
}

impl FlowControlFlags {
    /// Validates the options.
    pub(super) fn options(&self) -> anyhow::Result<FlowControlOptions> {
        let options = FlowControlOptions {
            is_fair: self.enable_priority_and_fairness,
            reading_max: self.max_requests_inflight,
            mutating_max: self.max_mutating_requests_inflight,
        };
        ensure!(
            !options.is_fair || options.reading_max.saturating_add(options.mutating_max) > 0,
            "--max-requests-inflight and --max-mutating-requests-inflight must add up to something positive"
        );
        Ok(options)
    }
}
