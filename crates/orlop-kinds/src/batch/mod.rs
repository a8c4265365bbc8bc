//! Kinds of `batch`.

mod cron_job;
mod job;
mod job_spec;
mod schedule;
mod success_policy;

use crate::BuiltinKind;

pub(crate) const KINDS: &[BuiltinKind] = &[cron_job::KIND, job::KIND];
