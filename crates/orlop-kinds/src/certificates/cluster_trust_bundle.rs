//! ClusterTrustBundle: trust anchors of a signer.

use orlop_api::names::NameRule;

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::text_or,
    printer::{ColumnDefinition, PrinterColumns, name},
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    name_rule: NameRule::PathSegment,
    flags: StrategyFlags { allow_unconditional_update: false, ..StrategyFlags::BUILTIN },
    selectable_fields: &["spec.signerName"],
    columns: &COLUMNS,
    ..BuiltinKind::new("certificates.k8s.io", "clustertrustbundles")
};

pub(crate) static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[ColumnDefinition::NAME, ColumnDefinition::text("SignerName")],
    cells: |object, _| vec![name(object), text_or(object, "/spec/signerName", "<none>").into()],
};
