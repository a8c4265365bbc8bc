//! Validation of `spec.conversion`.

use super::ca_bundle;
use super::webhook::{validate_webhook_service, validate_webhook_url};
use orlop_api::field_error::{FieldError, FieldPath};
use orlop_api::names::dns1035_label;
use orlop_api::schema::unstructured::{strings, text};
use serde_json::Value;

/// Recognized versions of ConversionReview.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Requirements on the conversion, relaxed where the stored definition violates them.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConversionOptions {
    /// Allow lists without a recognized review version.
    pub(super) review_versions: bool,
    /// Allow unreadable certificates.
    pub(super) ca_bundle: bool,
}

fn webhook(conversion: &Value) -> &Value {
    conversion.get("webhook").unwrap_or(&Value::Null)
}

fn client_config(conversion: &Value) -> Option<&Value> {
    webhook(conversion).get("clientConfig").filter(|config| !config.is_null())
}

pub(super) fn validate(conversion: &Value, options: ConversionOptions, path: &FieldPath) -> Vec<FieldError> {
    if conversion.is_null() {
        return Vec::new();
    }
    let mut errors = Vec::new();
    let strategy = text(conversion, "strategy");
    let strategy_path = path.child("strategy");
    match strategy {
        "None" | "Webhook" => {}
        "" => errors.push(FieldError::required(&strategy_path, "")),
        other => errors.push(FieldError::not_supported(&strategy_path, other, &["None", "Webhook"])),
    }
    let config = client_config(conversion);
    let config_path = path.child("webhookClientConfig");
    let versions_path = path.child("conversionReviewVersions");
    let versions: Vec<_> = strings(webhook(conversion), "conversionReviewVersions").collect();
    if strategy == "Webhook" {
        match config {
            None => {
                errors.push(FieldError::required(&config_path, "required when strategy is set to Webhook"));
            }
            Some(config) => errors.extend(validate_config(config, options, &config_path)),
        }
        errors.extend(validate_review_versions(&versions, options, &versions_path));
    } else {
        let detail = "should not be set when strategy is not set to Webhook";
        if config.is_some() {
            errors.push(FieldError::forbidden(&config_path, detail));
        }
        if !versions.is_empty() {
            errors.push(FieldError::forbidden(&versions_path, detail));
        }
    }
    errors
}

fn validate_config(config: &Value, options: ConversionOptions, path: &FieldPath) -> Vec<FieldError> {
    let url = config.get("url").and_then(Value::as_str);
    let service = config.get("service").filter(|service| !service.is_null());
    let mut errors = match (url, service) {
        (Some(url), None) => validate_webhook_url(url, &path.child("url")),
        (None, Some(service)) => validate_webhook_service(service, &path.child("service")),
        _ => vec![FieldError::required(path, "exactly one of url or service is required")],
    };
    let bundle = text(config, "caBundle");
    if !bundle.is_empty() && !options.ca_bundle {
        errors.extend(ca_bundle::validate(bundle, &path.child("caBundle")));
    }
    errors
}

fn validate_review_versions(
    versions: &[&str],
    options: ConversionOptions,
    path: &FieldPath,
) -> Vec<FieldError> {
    if versions.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let mut errors = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        let path = path.index(index);
        if versions[..index].contains(version) {
            errors.push(FieldError::invalid(&path, *version, "duplicate version"));
        } else {
            let problems = dns1035_label(version);
            errors.extend(problems.into_iter().map(|why| FieldError::invalid(&path, *version, why)));
        }
    }
    if !options.review_versions && !has_recognized_version(versions) {
        let detail = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        errors.push(FieldError::invalid(path, versions.to_vec(), detail));
    }
    errors
}

fn has_recognized_version(versions: &[&str]) -> bool {
    versions.iter().any(|version| REVIEW_VERSIONS.contains(version))
}

/// Returns the requirements on updates of a definition with this conversion.
pub(super) fn conversion_options_after(old: &Value, established: bool) -> ConversionOptions {
    let versions: Vec<_> = strings(webhook(old), "conversionReviewVersions").collect();
    ConversionOptions {
        review_versions: !versions.is_empty() && !has_recognized_version(&versions),
        ca_bundle: !established || has_broken_bundle(old),
    }
}

/// Returns whether a stored conversion webhook has an unreadable caBundle.
pub(crate) fn has_broken_ca_bundle(definition: &Value) -> bool {
    definition.pointer("/spec/conversion").is_some_and(has_broken_bundle)
}

fn has_broken_bundle(conversion: &Value) -> bool {
    let bundle = client_config(conversion).map(|config| text(config, "caBundle")).unwrap_or_default();
    !bundle.is_empty() && ca_bundle::validate(bundle, &FieldPath::nil()).is_some()
}
