//! Status of requests that a webhook denied, or that failed with it.

use orlop_api::{
    go_text,
    status::{Cause, Reason, Status},
};
use serde_json::Value;

/// Largest status code that HTTP has.
const CODE_MAX: i64 = 999;

/// Returns the Status of a request that a webhook denied. `result` is the webhook's own.
pub(super) fn denied(webhook: &str, result: Option<&Value>) -> Status {
    let null = Value::Null;
    let result = result.unwrap_or(&null);
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let (message, reason) = (text(result, "message"), text(result, "reason"));
    let denied = format!("admission webhook {} denied the request", go_text::quote(webhook));
    let message = match (message.as_str(), reason.as_str()) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    // A denial is no success, whatever the webhook says.
    let code = result["code"].as_i64().filter(|code| (400..=CODE_MAX).contains(code)).unwrap_or(400);
    let known = Reason::parse(&reason);
    let mut status = Status::new(code as u16, known.unwrap_or(Reason::Unknown), message);
    if known.is_none() {
        status.custom_reason = Some(reason.into());
    }
    let details = &result["details"];
    if details.is_object() {
        let causes = details["causes"].as_array().into_iter().flatten().map(|cause| Cause {
            reason: text(cause, "reason"),
            message: text(cause, "message"),
            field: text(cause, "field"),
        });
        let seconds = details["retryAfterSeconds"].as_u64().and_then(|seconds| seconds.try_into().ok());
        let set = status.details_mut();
        set.name = text(details, "name");
        set.group = text(details, "group");
        set.kind = text(details, "kind");
        set.uid = text(details, "uid");
        set.causes = causes.collect();
        set.retry_after_seconds = seconds.unwrap_or_default();
    }
    status
}

/// Returns the Status of a dry run that a webhook cannot take part in.
pub(super) fn dry_run_unsupported(webhook: &str) -> Status {
    Status::bad_request(format!("admission webhook {} does not support dry run", go_text::quote(webhook)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn denial_keeps_what_the_webhook_says() {
        let cases = [
            (json!(null), 400, "", "without explanation"),
            (json!({"code": 200, "status": "Success"}), 400, "", "without explanation"),
            (json!({"code": 403, "reason": "Forbidden"}), 403, "Forbidden", ": Forbidden"),
            (json!({"code": 418, "reason": "Teapot", "message": "no"}), 418, "Teapot", ": no"),
            (json!({"code": 70_000, "message": "no"}), 400, "", ": no"),
        ];
        for (result, code, reason, end) in cases {
            let status = denied("a.b.c", Some(&result));
            let separator = if end.starts_with(':') { "" } else { " " };
            assert_eq!(
                (status.code, status.reason_text(), status.message.as_str()),
                (code, reason, &*format!("admission webhook \"a.b.c\" denied the request{separator}{end}"))
            );
        }
        let detailed =
            json!({"details": {"name": "n", "retryAfterSeconds": 7, "causes": [{"field": "spec"}]}});
        let details = denied("a.b.c", Some(&detailed)).details.unwrap();
        assert_eq!((details.retry_after_seconds, details.causes[0].field.as_str()), (7, "spec"));
    }
}
