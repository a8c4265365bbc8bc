//! DeviceClass: a selection of devices with configuration.

use crate::{BuiltinKind, StrategyFlags, printer::NAME_AND_AGE};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { returns_deleted_object: true, tracks_generation: true, ..StrategyFlags::BUILTIN },
    columns: &NAME_AND_AGE,
    ..BuiltinKind::new("resource.k8s.io", "deviceclasses")
};
