//! CronJob: creates Jobs on a schedule.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::Value;

use super::{job_spec, schedule};
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{flag, list, present, text, text_or, time},
    core::pod,
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, container_cells, format_age, format_selector, name},
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { tracks_generation: true, ..StrategyFlags::BUILTIN },
    columns: &COLUMNS,
    strategy: &CronJob,
    ..BuiltinKind::new("batch", "cronjobs")
};

/// Name length that leaves room for the 11 characters that the controller appends.
const NAME_LENGTH_MAX: usize = 52;
const ZONE_PART_LENGTH_MAX: usize = 14;

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Schedule"),
        ColumnDefinition::text("Timezone"),
        ColumnDefinition::boolean("Suspend"),
        ColumnDefinition::integer("Active"),
        ColumnDefinition::text("Last Schedule"),
        ColumnDefinition::AGE,
        ColumnDefinition::wide("Containers"),
        ColumnDefinition::wide("Images"),
        ColumnDefinition::wide("Selector"),
    ],
    cells: |object, now| {
        let [names, images] = container_cells(object, "/spec/jobTemplate/spec/template/spec");
        let suspended = match present(object, "/spec/suspend") {
            None => "<unset>",
            Some(Value::Bool(true)) => "True",
            Some(_) => "False",
        };
        let last = time(object, "/status/lastScheduleTime");
        vec![
            name(object),
            text(object, "/spec/schedule").into(),
            text_or(object, "/spec/timeZone", "<none>").into(),
            suspended.into(),
            list(object, "/status/active").len().into(),
            last.map_or_else(|| "<none>".to_owned(), |last| format_age(Some(last), now)).into(),
            age(object, now),
            names,
            images,
            format_selector(object.pointer("/spec/jobTemplate/spec/selector")),
        ]
    },
};

pub(crate) struct CronJob;

impl Strategy for CronJob {
    fn set_defaults(&self, object: &mut Value) {
        if let Some(job) = defaulting::object_at_mut(object, "/spec/jobTemplate/spec") {
            job_spec::set_template_defaults(job);
        }
        let Some(spec) = defaulting::object_mut(object, "spec") else { return };
        defaulting::set_if_zero(spec, "concurrencyPolicy", "Allow");
        defaulting::set_if_absent(spec, "suspend", false);
        defaulting::set_if_absent(spec, "successfulJobsHistoryLimit", 3);
        defaulting::set_if_absent(spec, "failedJobsHistoryLimit", 1);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (object.get("spec").unwrap_or(&Value::Null), FieldPath::root("spec"));
        let mut errors = validate_schedule(spec, &path);
        errors.extend(validation::validate_non_negative(spec, "startingDeadlineSeconds", &path));
        errors.extend(validate_time_zone(spec, &path.child("timeZone")));
        let policies = &["Allow", "Forbid", "Replace"];
        errors.extend(validation::require_supported(spec, "concurrencyPolicy", &path, policies));
        let template = path.child("jobTemplate").child("spec");
        let job = spec.pointer("/jobTemplate/spec").unwrap_or(&Value::Null);
        errors.extend(job_spec::validate(job, &template));
        if let Some(selector) = present(job, "/selector") {
            let detail = "`selector` will be auto-generated";
            errors.push(FieldError::invalid(&template.child("selector"), selector.clone(), detail));
        }
        if flag(job, "/manualSelector") {
            errors.push(FieldError::not_supported(
                &template.child("manualSelector"),
                true,
                &["nil", "false"],
            ));
        }
        errors.extend(validation::validate_non_negative(spec, "successfulJobsHistoryLimit", &path));
        errors.extend(validation::validate_non_negative(spec, "failedJobsHistoryLimit", &path));
        let name = text(object, "/metadata/name");
        if name.len() > NAME_LENGTH_MAX {
            let detail = format!("must be no more than {NAME_LENGTH_MAX} characters");
            errors.push(FieldError::invalid(&FieldPath::root("metadata").child("name"), name, detail));
        }
        errors
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        let path = FieldPath::root("spec").child("jobTemplate").child("spec").child("template");
        let template = object.pointer("/spec/jobTemplate/spec/template").unwrap_or(&Value::Null);
        pod::template_warnings(template, &path)
    }
}

fn validate_schedule(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let path = path.child("schedule");
    let given = text(spec, "/schedule");
    if given.is_empty() {
        return vec![FieldError::required(&path, "").declaratively()];
    }
    let mut errors: Vec<FieldError> = schedule::validate(given)
        .err()
        .into_iter()
        .map(|why| FieldError::invalid(&path, given, why))
        .collect();
    if given.contains("TZ") {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        errors.push(FieldError::invalid(&path, given, detail));
    }
    errors
}

/// Validates timeZone: a known IANA zone.
fn validate_time_zone(spec: &Value, path: &FieldPath) -> Option<FieldError> {
    let zone = present(spec, "/timeZone")?.as_str()?;
    if zone.is_empty() {
        return Some(FieldError::invalid(path, zone, "timeZone must be nil or non-empty string"));
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'+');
    let good = |part: &str| {
        !matches!(part, "" | "." | "..")
            && !part.starts_with('-')
            && part.len() <= ZONE_PART_LENGTH_MAX
            && part.bytes().all(allowed)
    };
    if zone.eq_ignore_ascii_case("Local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        return Some(FieldError::invalid(path, zone, detail));
    }
    let known = zone.split('/').all(good) && orlop_cel::is_time_zone(zone);
    (!known).then(|| FieldError::invalid(path, zone, format!("unknown time zone {zone}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    fn cron() -> Value {
        let mut object = json!({"metadata": {"name": "c"}, "spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x:1"}]}}}}}});
        CronJob.set_defaults(&mut object);
        object
    }

    #[test]
    fn cron_job_defaults_are_set() {
        let object = cron();
        let spec = &object["spec"];
        assert_eq!((&spec["concurrencyPolicy"], &spec["suspend"]), (&json!("Allow"), &json!(false)));
        assert_eq!(
            (&spec["successfulJobsHistoryLimit"], &spec["failedJobsHistoryLimit"]),
            (&json!(3), &json!(1))
        );
        assert_eq!(spec["jobTemplate"]["spec"]["template"]["spec"]["dnsPolicy"], "ClusterFirst");
        assert_eq!(spec["jobTemplate"]["spec"].get("backoffLimit"), None);
        assert!(messages(CronJob.validate(&object)).is_empty());
        let expected =
            json!(["c", "*/5 * * * *", "<none>", "False", 0, "<none>", "<unknown>", "c", "x:1", "<none>"]);
        assert_eq!(row(&COLUMNS, &object), expected.as_array().unwrap()[..]);
    }

    #[test]
    fn invalid_schedules_zones_and_policies_are_rejected() {
        let with = |field: &str, value: Value| {
            let mut object = cron();
            object["spec"][field] = value;
            messages(CronJob.validate(&object))
        };
        assert_eq!(with("schedule", json!("")), ["spec.schedule: Required value"]);
        assert_eq!(
            with("schedule", json!("* * *")),
            [r#"spec.schedule: Invalid value: "* * *": expected exactly 5 fields, found 3: [* * *]"#]
        );
        assert_eq!(
            with("schedule", json!("TZ=UTC * * * * *")),
            [
                r#"spec.schedule: Invalid value: "TZ=UTC * * * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field instead"#
            ]
        );
        assert_eq!(
            with("timeZone", json!("a b")),
            [r#"spec.timeZone: Invalid value: "a b": unknown time zone a b"#]
        );
        assert_eq!(
            with("timeZone", json!("Europe/Atlantis")),
            [r#"spec.timeZone: Invalid value: "Europe/Atlantis": unknown time zone Europe/Atlantis"#]
        );
        assert!(with("timeZone", json!("Europe/Vienna")).is_empty());
        assert_eq!(
            with("concurrencyPolicy", json!("x")),
            [
                r#"spec.concurrencyPolicy: Unsupported value: "x": supported values: "Allow", "Forbid", "Replace""#
            ]
        );
        let mut long = cron();
        long["metadata"]["name"] = "x".repeat(53).into();
        assert!(messages(CronJob.validate(&long))[0].ends_with("must be no more than 52 characters"));
    }
}
