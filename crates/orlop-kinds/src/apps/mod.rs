//! Kinds of `apps`.

mod controller_revision;
mod daemon_set;
mod deployment;
pub(crate) mod replica_set;
mod stateful_set;

use crate::BuiltinKind;

pub(crate) const KINDS: &[BuiltinKind] =
    &[controller_revision::KIND, daemon_set::KIND, deployment::KIND, replica_set::KIND, stateful_set::KIND];
