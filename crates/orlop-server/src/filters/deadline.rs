//! Deadline filter.

use std::{future::Future, time::Duration};

use http::Response;
use orlop_api::status::Status;

use crate::http::{body::Body, query::Query};

/// Maximum time of a request that is not long-running.
const LIMIT_MAX: Duration = Duration::from_secs(60);

/// Returns the time limit of a request.
pub(crate) fn of(query: &Query) -> Result<Duration, Status> {
    match query.get("timeout").filter(|text| !text.is_empty()) {
        None => Ok(LIMIT_MAX),
        Some(text) => match go_duration(text) {
            // Zero means no timeout, as in Kubernetes.
            Ok(Duration::ZERO) => Ok(LIMIT_MAX),
            Ok(asked) => Ok(asked.min(LIMIT_MAX)),
            Err(why) => Err(Status::bad_request(format!(
                "invalid timeout specified in the request URL - time: {why} {text:?}"
            ))),
        },
    }
}

/// Answers Timeout if a request exceeds its limit.
pub(crate) async fn within(
    limit: Duration,
    work: impl Future<Output = Result<Response<Body>, Status>>,
) -> Result<Response<Body>, Status> {
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or_else(|_| Err(Status::timeout("request did not complete within the allotted timeout", 0)))
}

/// Parses a Go duration: `1m30s`, `500ms`, `0`. Negative ones are zero.
fn go_duration(text: &str) -> Result<Duration, String> {
    let invalid = || "invalid duration".to_owned();
    if let Some(positive) = text.strip_prefix('-') {
        return go_duration(positive).map(|_| Duration::ZERO);
    }
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let of_number = |character: char| character.is_ascii_digit() || character == '.';
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|character| !of_number(character)).unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let number: f64 = number.parse().map_err(|_| invalid())?;
        let (unit, after) = tail.split_at(tail.find(of_number).unwrap_or(tail.len()));
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            "" => return Err("missing unit in duration".to_owned()),
            _ => return Err(format!("unknown unit {unit:?} in duration")),
        };
        total += Duration::try_from_secs_f64(number * seconds).map_err(|_| invalid())?;
        rest = after;
    }
    if text.is_empty() { Err(invalid()) } else { Ok(total) }
}
