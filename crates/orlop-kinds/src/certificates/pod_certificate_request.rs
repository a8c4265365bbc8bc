//! PodCertificateRequest: a kubelet's request for a pod's certificate.

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{list, map, text},
    printer::{ColumnDefinition, PrinterColumns, format_labels, name},
    update_scope::STATUS_WITHOUT_METADATA,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { allow_unconditional_update: false, ..StrategyFlags::BUILTIN },
    selectable_fields: &["spec.signerName", "spec.podName", "spec.nodeName"],
    update_scopes: STATUS_WITHOUT_METADATA,
    columns: &COLUMNS,
    ..BuiltinKind::new("certificates.k8s.io", "podcertificaterequests")
};

pub(crate) static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("PodName"),
        ColumnDefinition::text("ServiceAccountName"),
        ColumnDefinition::text("NodeName"),
        ColumnDefinition::text("SignerName"),
        ColumnDefinition::text("State"),
        ColumnDefinition::text("UnverifiedUserAnnotations"),
    ],
    cells: |object, _| {
        let field = |pointer| text(object, pointer).into();
        let mut conditions =
            list(object, "/status/conditions").iter().map(|condition| text(condition, "/type"));
        let state =
            conditions.rfind(|kind| matches!(*kind, "Issued" | "Denied" | "Failed")).unwrap_or("Pending");
        vec![
            name(object),
            field("/spec/podName"),
            field("/spec/serviceAccountName"),
            field("/spec/nodeName"),
            field("/spec/signerName"),
            state.into(),
            format_labels(map(object, "/spec/unverifiedUserAnnotations")),
        ]
    },
};
