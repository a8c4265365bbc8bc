//! Request options and their validation.

use crate::field_error::{FieldError, FieldPath};
use crate::object_meta::validate_field_manager;

/// Field validation directive: handling of unknown and duplicate fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

impl FieldValidation {
    /// Empty is the default.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Warn" => Some(Self::Warn),
            "Ignore" => Some(Self::Ignore),
            "Strict" => Some(Self::Strict),
            _ => None,
        }
    }
}

/// CreateOptions, UpdateOptions and PatchOptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    pub dry_run: Vec<String>,
    pub field_manager: String,
    pub field_validation: String,
    /// Only for apply.
    pub force: Option<bool>,
}

impl WriteOptions {
    pub fn validate(&self) -> Vec<FieldError> {
        let mut errors = validate_field_manager(&self.field_manager, &FieldPath::root("fieldManager"));
        errors.extend(validate_dry_run(&self.dry_run));
        if FieldValidation::parse(&self.field_validation).is_none() {
            let path = FieldPath::root("fieldValidation");
            let allowed = ["", "Ignore", "Strict", "Warn"];
            errors.push(FieldError::not_supported(&path, self.field_validation.as_str(), &allowed));
        }
        errors
    }

    /// Validates PatchOptions: apply requires a field manager, only apply allows force.
    pub fn validate_patch(&self, is_apply: bool) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if is_apply && self.field_manager.is_empty() {
            errors
                .push(FieldError::required(&FieldPath::root("fieldManager"), "is required for apply patch"));
        }
        if !is_apply && self.force.is_some() {
            let detail = "may not be specified for non-apply patch";
            errors.push(FieldError::forbidden(&FieldPath::root("force"), detail));
        }
        errors.extend(self.validate());
        errors
    }
}

fn validate_dry_run(dry_run: &[String]) -> Option<FieldError> {
    let known = dry_run.iter().all(|value| value == "All");
    (!known).then(|| FieldError::not_supported(&FieldPath::root("dryRun"), dry_run.to_vec(), &["All"]))
}

/// DeleteOptions, as far as they are validated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    pub dry_run: Vec<String>,
    pub orphan_dependents: Option<bool>,
    pub propagation_policy: Option<String>,
    pub grace_period_seconds: Option<i64>,
    pub has_preconditions: bool,
    pub ignore_store_read_error: bool,
}

impl DeleteOptions {
    pub fn validate(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let path = FieldPath::root("propagationPolicy");
        if let Some(policy) = &self.propagation_policy {
            if self.orphan_dependents.is_some() {
                let detail = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid(&path, policy.as_str(), detail));
            }
            if !matches!(policy.as_str(), "Foreground" | "Background" | "Orphan") {
                let allowed = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported(&path, policy.as_str(), &allowed));
            }
        }
        errors.extend(validate_dry_run(&self.dry_run));
        if self.ignore_store_read_error {
            let path = FieldPath::root("ignoreStoreReadErrorWithClusterBreakingPotential");
            let others = [
                (self.propagation_policy.is_some(), ".propagationPolicy"),
                (self.orphan_dependents.is_some(), ".orphanDependents"),
                (self.grace_period_seconds.is_some(), ".gracePeriodSeconds"),
                (self.has_preconditions, ".preconditions"),
            ];
            for (_, other) in others.into_iter().filter(|(set, _)| *set) {
                errors.push(FieldError::invalid(&path, true, format!("cannot be set together with {other}")));
            }
        }
        errors
    }
}

/// ListOptions, as far as they are validated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    pub watch: bool,
    pub resource_version: String,
    pub resource_version_match: String,
    pub continue_token: String,
    pub send_initial_events: Option<bool>,
}

impl ListOptions {
    pub fn validate(&self) -> Vec<FieldError> {
        if self.watch {
            return self.validate_watch();
        }
        let mut errors = Vec::new();
        let path = FieldPath::root("resourceVersionMatch");
        let wanted = self.resource_version_match.as_str();
        if !wanted.is_empty() {
            if self.resource_version.is_empty() {
                let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                errors.push(FieldError::forbidden(&path, detail));
            }
            if !self.continue_token.is_empty() {
                errors.push(FieldError::forbidden(
                    &path,
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
            if !matches!(wanted, "Exact" | "NotOlderThan") {
                errors.push(FieldError::not_supported(&path, wanted, &["Exact", "NotOlderThan", ""]));
            }
            if wanted == "Exact" && self.resource_version == "0" {
                let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                errors.push(FieldError::forbidden(&path, detail));
            }
        }
        if self.send_initial_events.is_some() {
            let path = FieldPath::root("sendInitialEvents");
            errors.push(FieldError::forbidden(&path, "sendInitialEvents is forbidden for list"));
        }
        errors
    }

    fn validate_watch(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let path = FieldPath::root("resourceVersionMatch");
        let wanted = self.resource_version_match.as_str();
        if self.send_initial_events.is_some() && wanted != "NotOlderThan" {
            let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden(&path, detail));
        }
        if wanted.is_empty() {
            return errors;
        }
        if self.send_initial_events.is_none() {
            let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden(&path, detail));
        }
        if wanted != "NotOlderThan" {
            errors.push(FieldError::not_supported(&path, wanted, &["NotOlderThan"]));
        }
        if !self.continue_token.is_empty() {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn write_options_are_validated() {
        assert!(
            WriteOptions {
                dry_run: vec!["All".into()],
                field_validation: "Strict".into(),
                ..WriteOptions::default()
            }
            .validate()
            .is_empty()
        );
        let options = WriteOptions {
            dry_run: vec!["Some".into()],
            field_validation: "Maybe".into(),
            ..WriteOptions::default()
        };
        assert_eq!(
            printed(&options.validate()),
            [
                r#"dryRun: Unsupported value: ["Some"]: supported values: "All""#,
                r#"fieldValidation: Unsupported value: "Maybe": supported values: "", "Ignore", "Strict", "Warn""#,
            ]
        );
        assert_eq!(
            printed(&WriteOptions::default().validate_patch(true)),
            ["fieldManager: Required value: is required for apply patch"]
        );
        let forced = WriteOptions { force: Some(true), field_manager: "m".into(), ..WriteOptions::default() };
        assert_eq!(
            printed(&forced.validate_patch(false)),
            ["force: Forbidden: may not be specified for non-apply patch"]
        );
        assert!(forced.validate_patch(true).is_empty());
        let long = WriteOptions { field_manager: "m".repeat(129), ..WriteOptions::default() };
        assert_eq!(printed(&long.validate()), ["fieldManager: Too long: may not be more than 128 bytes"]);
    }

    #[test]
    fn delete_options_are_validated() {
        let options = DeleteOptions {
            orphan_dependents: Some(true),
            propagation_policy: Some("Orphan".into()),
            ..DeleteOptions::default()
        };
        assert_eq!(
            printed(&options.validate()),
            [
                r#"propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both set"#
            ]
        );
        let options = DeleteOptions {
            propagation_policy: Some("Later".into()),
            ignore_store_read_error: true,
            ..DeleteOptions::default()
        };
        assert_eq!(
            printed(&options.validate()),
            [
                r#"propagationPolicy: Unsupported value: "Later": supported values: "Foreground", "Background", "Orphan", "nil""#,
                "ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: cannot be set together with .propagationPolicy",
            ]
        );
    }

    #[test]
    fn list_options_are_validated() {
        let list = |version: &str, wanted: &str, token: &str| ListOptions {
            resource_version: version.into(),
            resource_version_match: wanted.into(),
            continue_token: token.into(),
            ..ListOptions::default()
        };
        assert!(list("5", "Exact", "").validate().is_empty());
        assert_eq!(
            printed(&list("", "Exact", "").validate()),
            [
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
            ]
        );
        assert_eq!(
            printed(&list("0", "Exact", "").validate()),
            [
                r#"resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#
            ]
        );
        assert_eq!(
            printed(&list("5", "Exact", "t").validate()),
            ["resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"]
        );
        let list_with_initial = ListOptions { send_initial_events: Some(true), ..ListOptions::default() };
        assert_eq!(
            printed(&list_with_initial.validate()),
            ["sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"]
        );
        let watch = ListOptions { watch: true, send_initial_events: Some(true), ..ListOptions::default() };
        assert_eq!(
            printed(&watch.validate()),
            [
                "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            ]
        );
        let watch = ListOptions {
            watch: true,
            resource_version_match: "NotOlderThan".into(),
            ..ListOptions::default()
        };
        assert_eq!(
            printed(&watch.validate()),
            [
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            ]
        );
    }
}
