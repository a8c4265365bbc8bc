//! CustomResourceDefinitions: defaulting, validation, names, schemas, rules, conversion.
//!
//! All functions are pure: no I/O, no clock, no tasks. A definition is JSON
//! (`apiextensions.k8s.io/v1`), which is
//! - defaulted ([`apply_defaults`]) and validated ([`validate_create`], [`validate_update`],
//!   [`validate_status_update`], [`warnings`]) with Kubernetes' rules, texts and order of causes;
//! - parsed into a [`Definition`], which is cheap: names, scope, versions, conversion. [`Version`] builds its
//!   schema, rules and columns on first use;
//! - given names and conditions by [`accept_names`], which resolves conflicts within its group.
//!
//! Objects are validated by [`Version::validate_create`] and its siblings, and converted by
//! [`conversion`].
//!
//! Error messages use the field paths of Kubernetes' internal type, as its server does: fields shared by all versions
//! are `spec.validation`, `spec.subresources`, `spec.additionalPrinterColumns`; a webhook is
//! `spec.conversion.webhookClientConfig`.

mod columns;
mod conditions;
pub mod conversion;
mod defaults;
mod definition;
mod instance;
mod name_acceptance;
mod names;
mod nested;
pub mod openapi;
mod rules;
mod scale;
mod selectable;
mod validate;
mod version;
mod warnings;

pub use columns::Columns;
pub use conditions::{Condition, Conditions, ESTABLISHED, NAMES_ACCEPTED, TERMINATING};
pub use defaults::apply_defaults;
pub use definition::{Conversion, Definition, InvalidDefinition, Scope, Webhook, WebhookTarget};
pub use name_acceptance::{Acceptance, accept_names, approval_condition, structural_condition};
pub use names::Names;
pub use rules::{Rules, ValidationResult};
pub use scale::Scale;
pub use selectable::SelectableFields;
pub use validate::{
    ca_bundle_problem, validate_create, validate_status_update, validate_update, validate_webhook_service,
    validate_webhook_url,
};
pub use version::Version;
pub use warnings::{object_warnings, warnings};
