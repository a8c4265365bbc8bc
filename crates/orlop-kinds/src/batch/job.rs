//! Job: pods that run to completion.

use orlop_api::{
    duration,
    field_error::{FieldError, FieldPath},
    fields,
    labels::{self, Selector},
    names,
};
use serde_json::{Value, json};

use super::job_spec;
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{flag, integer, is_condition_true, is_terminating, map, present, text, time},
    core::pod,
    defaulting,
    equality::semantically_equal,
    printer::{ColumnDefinition, PrinterColumns, age, container_cells, format_selector, name},
    strategy::{RequestContext, Strategy},
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags {
        orphans_dependents_by_default: true,
        tracks_generation: true,
        ..StrategyFlags::BUILTIN
    },
    selectable_fields: &["status.successful"],
    columns: &COLUMNS,
    strategy: &Job,
    ..BuiltinKind::new("batch", "jobs")
};

const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Status"),
        ColumnDefinition::text("Completions"),
        ColumnDefinition::text("Duration"),
        ColumnDefinition::AGE,
        ColumnDefinition::wide("Containers"),
        ColumnDefinition::wide("Images"),
        ColumnDefinition::wide("Selector"),
    ],
    cells: |object, now| {
        let [names, images] = container_cells(object, "/spec/template/spec");
        let taken = match (time(object, "/status/startTime"), time(object, "/status/completionTime")) {
            (None, _) => String::new(),
            (Some(start), end) => duration::human(end.unwrap_or(now).seconds_since(start)),
        };
        vec![
            name(object),
            status_text(object).into(),
            completions_text(object).into(),
            taken.into(),
            age(object, now),
            names,
            images,
            format_selector(object.pointer("/spec/selector")),
        ]
    },
};

fn status_text(job: &Value) -> &'static str {
    let holds = |kind: &str| is_condition_true(job, kind);
    match () {
        () if holds("Complete") => "Complete",
        () if holds("Failed") => "Failed",
        () if is_terminating(job) => "Terminating",
        () if holds("Suspended") => "Suspended",
        () if holds("FailureTarget") => "FailureTarget",
        () if holds("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn completions_text(job: &Value) -> String {
    let succeeded = integer(job, "/status/succeeded");
    match (present(job, "/spec/completions"), integer(job, "/spec/parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism @ 2..) => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

/// Copies the template's labels to a job without labels.
fn default_labels_from_template(job: &mut Value) {
    let labels = map(job, "/spec/template/metadata/labels").clone();
    if map(job, "/metadata/labels").is_empty() && !labels.is_empty() {
        job["metadata"]["labels"] = Value::Object(labels);
    }
}

pub(crate) struct Job;

impl Strategy for Job {
    fn warnings_on_delete_without_propagation(&self) -> Vec<String> {
        vec![
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background \
             to remove them or set propagationPolicy=Orphan to suppress this warning"
                .to_owned(),
        ]
    }

    fn set_defaults(&self, object: &mut Value) {
        let Some(spec) = defaulting::object_mut(object, "spec") else { return };
        job_spec::set_template_defaults(spec);
        if present(spec, "/completions").is_none() && present(spec, "/parallelism").is_none() {
            spec["completions"] = 1.into();
        }
        defaulting::set_if_absent(spec, "parallelism", 1);
        let per_index = present(spec, "/backoffLimitPerIndex").is_some();
        defaulting::set_if_absent(spec, "backoffLimit", if per_index { i64::from(i32::MAX) } else { 6 });
        defaulting::set_if_absent(spec, "completionMode", "NonIndexed");
        defaulting::set_if_absent(spec, "suspend", false);
        let fails = present(spec, "/podFailurePolicy").is_some();
        defaulting::set_if_absent(
            spec,
            "podReplacementPolicy",
            if fails { "Failed" } else { "TerminatingOrFailed" },
        );
        defaulting::set_if_absent(spec, "manualSelector", false);
        default_labels_from_template(object);
    }

    fn prepare_for_create(&self, object: &mut Value, _context: &RequestContext<'_>) {
        if flag(object, "/spec/manualSelector") {
            return;
        }
        let (uid, name) =
            (text(object, "/metadata/uid").to_owned(), text(object, "/metadata/name").to_owned());
        let Some(spec) = defaulting::object_mut(object, "spec") else { return };
        let marks = NAME_LABELS.map(|label| (label, name.clone())).into_iter();
        let marks = marks.chain(UID_LABELS.map(|label| (label, uid.clone())));
        let marks = marks.map(|(label, value)| (label.to_owned(), Value::String(value))).collect();
        if let Some(template) = defaulting::object_mut(spec, "template") {
            defaulting::set_if_absent(template, "metadata", json!({}));
            if let Some(metadata) = defaulting::object_mut(template, "metadata") {
                defaulting::set_absent_entries(metadata, "labels", &marks);
            }
        }
        let own = [(UID_LABELS[1].to_owned(), Value::String(uid))].into_iter().collect();
        defaulting::set_if_absent(spec, "selector", json!({}));
        if let Some(selector) = defaulting::object_mut(spec, "selector") {
            defaulting::set_absent_entries(selector, "matchLabels", &own);
        }
        default_labels_from_template(object);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (object.get("spec").unwrap_or(&Value::Null), FieldPath::root("spec"));
        let mut errors = validate_generated_selector(object, spec);
        errors.extend(job_spec::validate(spec, &path));
        let selector_path = path.child("selector");
        match present(spec, "/selector") {
            None => errors.push(FieldError::required(&selector_path, "")),
            Some(selector) => errors.extend(labels::validate_label_selector(selector, &selector_path)),
        }
        let given = map(spec, "/template/metadata/labels");
        let selector = Selector::from_label_selector(spec.get("selector").unwrap_or(&Value::Null));
        if selector.is_ok_and(|selector| !selector.matches(Some(given))) {
            let path = path.child("template").child("metadata").child("labels");
            let detail = "`selector` does not match template `labels`";
            let given = spec.pointer("/template/metadata/labels").cloned().unwrap_or_default();
            errors.push(FieldError::invalid(&path, given, detail));
        }
        errors.extend(validate_indexed_pod_names(object, spec));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        validate_spec_update(object, old)
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        let mut warnings = Vec::new();
        let problems = names::dns1123_label(text(object, "/metadata/name"));
        if !problems.is_empty() {
            warnings.push(format!(
                "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
                problems.join(" ")
            ));
        }
        let path = FieldPath::root("spec").child("template");
        warnings
            .extend(pod::template_warnings(object.pointer("/spec/template").unwrap_or(&Value::Null), &path));
        warnings
    }

    fn field_value(&self, object: &Value, path: &str) -> String {
        match path {
            "status.successful" => integer(object, "/status/succeeded").to_string(),
            _ => fields::field_text(object, path),
        }
    }
}

/// Validates that generated selector and labels are unchanged.
fn validate_generated_selector(object: &Value, spec: &Value) -> Vec<FieldError> {
    if flag(spec, "/manualSelector") || present(spec, "/selector").is_none() {
        return Vec::new();
    }
    let (uid, name) = (text(object, "/metadata/uid"), text(object, "/metadata/name"));
    let path = FieldPath::root("spec").child("template").child("metadata");
    let given = map(spec, "/template/metadata/labels");
    let expected =
        [(UID_LABELS[0], uid), (NAME_LABELS[0], name), (UID_LABELS[1], uid), (NAME_LABELS[1], name)];
    let mut errors = Vec::new();
    for (label, value) in expected {
        match given.get(label).and_then(Value::as_str) {
            None => {
                let detail = format!("must be '{value}'");
                errors.push(FieldError::required(&path.child("labels").key(label), detail));
            }
            Some(found) if found != value => {
                let detail = format!("must be '{value}'");
                let labels = Value::Object(given.clone());
                errors.push(FieldError::invalid(&path.child("labels").key(label), labels, detail));
            }
            Some(_) => {}
        }
    }
    let expected: serde_json::Map<String, Value> =
        expected.into_iter().map(|(label, value)| (label.to_owned(), value.into())).collect();
    let selector = Selector::from_label_selector(spec.get("selector").unwrap_or(&Value::Null));
    if selector.is_ok_and(|selector| !selector.matches(Some(&expected))) {
        let path = FieldPath::root("spec").child("selector");
        let given = spec.get("selector").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(&path, given, "`selector` not auto-generated"));
    }
    errors
}

/// Validates that pod names of an indexed job, which end with the index, are valid.
fn validate_indexed_pod_names(object: &Value, spec: &Value) -> Option<FieldError> {
    let completions = integer(spec, "/completions");
    if text(spec, "/completionMode") != "Indexed" || completions <= 0 {
        return None;
    }
    let name = text(object, "/metadata/name");
    let longest = format!("{name}-{}", completions - 1);
    (!names::dns1123_label(&longest).is_empty()).then(|| {
        let detail = format!("will not able to create pod with invalid DNS label: {longest}");
        FieldError::invalid(&FieldPath::root("metadata").child("name"), name, detail)
    })
}

fn validate_spec_update(object: &Value, old: &Value) -> Vec<FieldError> {
    let path = FieldPath::root("spec");
    let none = Value::Null;
    let (new_spec, old_spec) = (object.get("spec").unwrap_or(&none), old.get("spec").unwrap_or(&none));
    let kept = |field: &str| validation::validate_immutable(new_spec, old_spec, field, &path);
    let mut errors = Vec::new();
    if text(new_spec, "/completionMode") != "Indexed" {
        errors.extend(kept("completions"));
    } else if new_spec.get("completions") != old_spec.get("completions")
        && new_spec.get("completions") != new_spec.get("parallelism")
    {
        let wanted = new_spec.get("completions").cloned().unwrap_or_default();
        let detail = "can only be modified in tandem with spec.parallelism";
        errors.push(FieldError::invalid(&path.child("completions"), wanted, detail));
    }
    errors.extend(kept("selector"));
    errors.extend(validate_template_update(old, new_spec, old_spec, &path));
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"]
    {
        errors.extend(kept(field));
    }
    errors
}

/// Validates a template update: scheduling directives may change while a job is suspended and has not started.
fn validate_template_update(
    old: &Value,
    new_spec: &Value,
    old_spec: &Value,
    path: &FieldPath,
) -> Option<FieldError> {
    let none = Value::Null;
    let new = new_spec.get("template").unwrap_or(&none);
    let mut before = old_spec.get("template").unwrap_or(&none).clone();
    if flag(old, "/spec/suspend") && present(old, "/status/startTime").is_none() {
        const FREE: [(&str, &str); 6] = [
            ("/spec", "nodeSelector"),
            ("/spec", "tolerations"),
            ("/spec", "schedulingGates"),
            ("/spec", "affinity"),
            ("/metadata", "annotations"),
            ("/metadata", "labels"),
        ];
        for (parent, field) in FREE {
            let wanted = new.pointer(&format!("{parent}/{field}")).cloned();
            match (defaulting::object_at_mut(&mut before, parent), wanted) {
                (Some(parent), Some(wanted)) => parent[field] = wanted,
                (Some(parent), None) => defaulting::remove_field(parent, field),
                (None, _) => {}
            }
        }
    }
    (!semantically_equal(new, &before))
        .then(|| FieldError::invalid(&path.child("template"), new.clone(), orlop_api::object_meta::IMMUTABLE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::tests::context;
    use crate::{printer::tests::row, validation::tests::messages};

    fn written() -> Value {
        json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x:1"}]}}}})
    }

    fn job() -> Value {
        let mut object = written();
        Job.set_defaults(&mut object);
        Job.prepare_for_create(&mut object, &context());
        object
    }

    #[test]
    fn job_defaults_and_selector_are_set() {
        let object = job();
        let spec = &object["spec"];
        assert_eq!(
            (&spec["completions"], &spec["parallelism"], &spec["backoffLimit"]),
            (&json!(1), &json!(1), &json!(6))
        );
        assert_eq!(
            (&spec["completionMode"], &spec["suspend"], &spec["manualSelector"]),
            (&json!("NonIndexed"), &json!(false), &json!(false))
        );
        assert_eq!(spec["podReplacementPolicy"], "TerminatingOrFailed");
        assert_eq!(spec["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}));
        assert_eq!(
            spec["template"]["metadata"]["labels"],
            json!({"batch.kubernetes.io/controller-uid": "u", "batch.kubernetes.io/job-name": "j", "controller-uid": "u", "job-name": "j"})
        );
        assert!(messages(Job.validate(&object)).is_empty());
    }

    #[test]
    fn restart_policy_always_is_rejected() {
        let mut object = written();
        object["spec"]["template"]["spec"]["restartPolicy"] = "Always".into();
        object["spec"]["backoffLimit"] = (-1).into();
        object["spec"]["maxFailedIndexes"] = 1.into();
        Job.set_defaults(&mut object);
        Job.prepare_for_create(&mut object, &context());
        assert_eq!(
            messages(Job.validate(&object)),
            [
                "spec.backoffLimit: Invalid value: -1: must be greater than or equal to 0",
                "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
                "spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode",
                "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
            ]
        );
        object = job();
        object["spec"]["template"]["metadata"]["labels"]["job-name"] = "other".into();
        assert!(
            messages(Job.validate(&object))[0]
                .starts_with("spec.template.metadata.labels[job-name]: Invalid value: {")
        );
        object = job();
        object["spec"]["selector"] = json!({"matchLabels": {"a": "b"}});
        assert_eq!(
            messages(Job.validate(&object))[0],
            r#"spec.selector: Invalid value: {"matchLabels":{"a":"b"}}: `selector` not auto-generated"#
        );
    }

    #[test]
    fn failure_policy_rules_require_one_condition() {
        let mut object = job();
        object["spec"]["podFailurePolicy"] = json!({"rules": [{"action": "x", "onExitCodes": {"operator": "In", "values": [0]}}, {"action": "Ignore"}]});
        object["spec"]["podReplacementPolicy"] = "Failed".into();
        assert_eq!(
            messages(Job.validate(&object)),
            [
                r#"spec.podFailurePolicy.rules[0].action: Unsupported value: "x": supported values: "Count", "FailIndex", "FailJob", "Ignore""#,
                "spec.podFailurePolicy.rules[0].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator",
                "spec.podFailurePolicy.rules[1]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
            ]
        );
        let rules = |rule: Value| {
            let mut object = job();
            object["spec"]["podFailurePolicy"] = json!({"rules": [rule]});
            object["spec"]["podReplacementPolicy"] = "Failed".into();
            messages(Job.validate(&object))
        };
        let codes = |values: Value| {
            rules(json!({"action": "Count", "onExitCodes": {"operator": "NotIn", "values": values}}))
        };
        let path = "spec.podFailurePolicy.rules[0]";
        assert!(codes(json!([0, 1, 42])).is_empty());
        assert_eq!(
            codes(json!([2, 1])),
            [format!("{path}.onExitCodes.values: Invalid value: [2,1]: must be ordered")]
        );
        assert_eq!(
            codes((0..256).collect()),
            [format!("{path}.onExitCodes.values: Too many: 256: must have at most 255 items")]
        );
        let patterns = vec![json!({"type": "Ready", "status": "True"}); 21];
        assert_eq!(
            rules(json!({"action": "Count", "onPodConditions": patterns})),
            [format!("{path}.onPodConditions: Too many: 21: must have at most 20 items")]
        );
    }

    #[test]
    fn job_spec_is_immutable() {
        let changed = |change: &dyn Fn(&mut Value), old: Value| {
            let mut new = old.clone();
            change(&mut new["spec"]);
            messages(Job.validate_update(&new, &old))
        };
        assert!(changed(&|spec| spec["parallelism"] = 5.into(), job()).is_empty());
        assert_eq!(
            changed(&|spec| spec["completions"] = 5.into(), job()),
            ["spec.completions: Invalid value: 5: field is immutable"]
        );
        let image = |spec: &mut Value| spec["template"]["spec"]["containers"][0]["image"] = "y".into();
        assert!(changed(&image, job())[0].ends_with("field is immutable"));
        let mut suspended = job();
        suspended["spec"]["suspend"] = true.into();
        assert!(
            changed(&|spec| spec["template"]["spec"]["nodeSelector"] = json!({"a": "b"}), suspended.clone())
                .is_empty()
        );
        assert_eq!(changed(&image, suspended).len(), 1);
    }

    #[test]
    fn row_shows_status_and_completions() {
        let mut object = job();
        object["status"] = json!({"succeeded": 1, "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:30Z", "conditions": [{"type": "Complete", "status": "True"}]});
        assert_eq!(row(&COLUMNS, &object)[1..4], ["Complete", "1/1", "30s"]);
        assert_eq!(row(&COLUMNS, &job())[1..4], ["Running", "0/1", ""]);
        let many = json!({"spec": {"parallelism": 3}, "status": {"conditions": [{"type": "Suspended", "status": "True"}]}});
        assert_eq!(row(&COLUMNS, &many)[1..3], ["Suspended", "0/1 of 3"]);
        assert_eq!(Job.field_value(&json!({"status": {"succeeded": 2}}), "status.successful"), "2");
    }
}
