//! Kinds of `policy`.

mod pod_disruption_budget;

use crate::BuiltinKind;

pub(crate) const KINDS: &[BuiltinKind] = &[pod_disruption_budget::KIND];
