//! ValidatingWebhookConfiguration: webhooks that validate requests.

use super::webhook_configuration::{self, WebhookConfiguration};
use crate::{BuiltinKind, StrategyFlags};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags {
        allow_unconditional_update: false,
        qualified_finalizers: false,
        tracks_generation: true,
        ..StrategyFlags::BUILTIN
    },
    columns: &webhook_configuration::COLUMNS,
    strategy: &WebhookConfiguration { mutating: false },
    ..BuiltinKind::new("admissionregistration.k8s.io", "validatingwebhookconfigurations")
};
