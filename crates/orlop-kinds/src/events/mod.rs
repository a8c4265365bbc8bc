//! Kinds of `events.k8s.io`.

mod conversion;
mod event;

use crate::BuiltinKind;

pub(crate) const KINDS: &[BuiltinKind] = &[event::KIND];
