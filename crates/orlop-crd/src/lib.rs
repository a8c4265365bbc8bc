//! CustomResourceDefinitions: defaulting, validation, names, schemas, rules, conversion.
//!
//! Everything here is a function of its arguments: no I/O, no clock, no tasks. A definition comes as JSON
//! (`apiextensions.k8s.io/v1`) and is
//! - given its defaults ([`default`]) and checked ([`validate_create`], [`validate_update`],
//!   [`validate_status_update`], [`warnings`]) with Kubernetes' rules, texts and order of causes;
//! - read into a [`Definition`], which is cheap: names, scope, versions, conversion. What serving a version needs (its
//!   schema, its rules, its columns) is built by [`Version`] when first asked for, and once;
//! - given names and conditions by [`accept`], beside the other definitions of its group.
//!
//! Objects of a version are checked by [`Version::validate_create`] and its siblings, and converted between versions by
//! [`conversion`].
//!
//! Messages name fields as Kubernetes' internal type has them, because its server prints those: what all versions have
//! in common is `spec.validation`, `spec.subresources`, `spec.additionalPrinterColumns`; a webhook is
//! `spec.conversion.webhookClientConfig`.

mod columns;
mod conditions;
pub mod conversion;
mod defaults;
mod definition;
mod instance;
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
pub use defaults::default;
pub use definition::{Conversion, Definition, InvalidDefinition, Scope, Webhook, WebhookTarget};
pub use names::{Acceptance, Names, accept, approval_condition, structural_condition};
pub use rules::{Rules, ValidationResult};
pub use scale::Scale;
pub use selectable::SelectableFields;
pub use validate::{validate_create, validate_service, validate_status_update, validate_update};
pub use version::Version;
pub use warnings::{object_warnings, warnings};
