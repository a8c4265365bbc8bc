//! Kinds of `autoscaling`.

mod conversion;
mod horizontal_pod_autoscaler;
mod metrics;

use crate::BuiltinKind;

pub(crate) const KINDS: &[BuiltinKind] = &[horizontal_pod_autoscaler::KIND];
