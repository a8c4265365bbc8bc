//! Kinds of `storagemigration.k8s.io`.

mod storage_version_migration;

use crate::BuiltinKind;

pub(crate) const KINDS: &[BuiltinKind] = &[storage_version_migration::KIND];
