//! Kinds of `storage.k8s.io`.

pub(crate) mod csi_driver;
mod csi_node;
mod csi_storage_capacity;
pub(crate) mod storage_class;
mod volume_attachment;
mod volume_attributes_class;

use crate::BuiltinKind;

pub(crate) const KINDS: &[BuiltinKind] = &[
    csi_driver::KIND,
    csi_node::KIND,
    csi_storage_capacity::KIND,
    storage_class::KIND,
    volume_attachment::KIND,
    volume_attributes_class::KIND,
];
