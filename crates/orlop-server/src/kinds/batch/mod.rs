//! Jobs, and the clock that starts them.

mod cron_job;
mod job;
mod schedule;
mod spec;
mod success_policy;

pub(super) use cron_job::CronJob;
pub(super) use job::Job;
