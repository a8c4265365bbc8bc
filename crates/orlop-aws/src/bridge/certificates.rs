//! Certificates of ACM: which covers a name, and which is ours.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::work::OWNER_TAG;
use crate::{
    client::{ACM, Result, Session, optional},
    kinds::acm::list_certificates,
};

/// Maximum number of certificates described for one name.
const CANDIDATES_MAX: usize = 100;

/// A certificate.
#[derive(Clone, Debug)]
pub(super) struct Certificate {
    pub(super) arn: String,
    pub(super) status: String,
    /// Reason of a failure.
    pub(super) failure: String,
    names: Vec<String>,
    /// Seconds since 1970.
    not_after: f64,
    /// Validation records: name, type, value. A name and its wildcard share one.
    pub(super) records: Vec<(String, String, String)>,
    pub(super) in_use_by: Vec<String>,
}

impl Certificate {
    fn of(answer: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &Value| -> Vec<String> {
            value
                .as_array()
                .into_iter()
                .flatten()
                .map(|item| item.as_str().unwrap_or_default().to_owned())
                .collect()
        };
        let mut names = list(&answer["SubjectAlternativeNames"]);
        names.push(text(&answer["DomainName"]));
        let options = answer["DomainValidationOptions"].as_array().into_iter().flatten();
        let records = options.map(|option| &option["ResourceRecord"]).filter(|record| record.is_object());
        let mut records: Vec<_> = records
            .map(|record| (text(&record["Name"]), text(&record["Type"]), text(&record["Value"])))
            .collect();
        records.sort();
        records.dedup();
        Self {
            arn: text(&answer["CertificateArn"]),
            status: text(&answer["Status"]),
            failure: text(&answer["FailureReason"]),
            names,
            not_after: answer["NotAfter"].as_f64().unwrap_or_default(),
            records,
            in_use_by: list(&answer["InUseBy"]),
        }
    }

    /// True if the certificate is past `NotAfter`, whatever its status.
    pub(super) fn is_expired(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        self.status == "EXPIRED" || (self.not_after > 0.0 && self.not_after <= now)
    }

    /// True if the certificate is good for a name.
    pub(super) fn covers(&self, domain: &str) -> bool {
        self.names.iter().any(|name| covers(name, domain))
    }

    fn is_exact(&self, domain: &str) -> bool {
        self.names.iter().any(|name| name.eq_ignore_ascii_case(domain))
    }
}

/// True if a name of a certificate covers a host name. `*.x` covers one label, not `x` itself.
fn covers(name: &str, domain: &str) -> bool {
    let (name, domain) = (name.to_lowercase(), domain.to_lowercase());
    if name == domain {
        return true;
    }
    let (Some(suffix), Some((label, rest))) = (name.strip_prefix("*."), domain.split_once('.')) else {
        return false;
    };
    label != "*" && rest == suffix
}

/// Reads a certificate; `None` if it does not exist.
pub(super) async fn describe(aws: &Session, arn: &str) -> Result<Option<Certificate>> {
    let read = aws.json(&ACM, "DescribeCertificate", json!({"CertificateArn": arn})).await;
    Ok(optional(read, &[])?.map(|answer| Certificate::of(&answer["Certificate"])))
}

/// Finds the best certificate for a name: an issued one before a pending one, an exact name before a wildcard, then the
/// one that expires last.
pub(super) async fn discover(aws: &Session, domain: &str) -> Result<Option<Certificate>> {
    let mut all = Vec::new();
    for summary in list_certificates(aws, &["ISSUED", "PENDING_VALIDATION"]).await? {
        if all.len() >= CANDIDATES_MAX {
            break;
        }
        if may_cover(&summary, domain)
            && let Some(found) = describe(aws, summary["CertificateArn"].as_str().unwrap_or_default()).await?
            && found.covers(domain)
        {
            all.push(found);
        }
    }
    all.retain(|found| {
        ["ISSUED", "PENDING_VALIDATION"].contains(&found.status.as_str()) && !found.is_expired()
    });
    all.sort_by(|one, other| {
        preference(one, domain).partial_cmp(&preference(other, domain)).unwrap_or(std::cmp::Ordering::Equal)
    });
    Ok(all.pop())
}

fn preference(certificate: &Certificate, domain: &str) -> (bool, bool, f64) {
    (certificate.status == "ISSUED", certificate.is_exact(domain), certificate.not_after)
}

/// False if a summary lists all names of a certificate and none covers.
fn may_cover(summary: &Value, domain: &str) -> bool {
    let names = summary["SubjectAlternativeNameSummaries"].as_array();
    let complete = summary["HasAdditionalSubjectAlternativeNames"] == false;
    match names {
        Some(names) if complete && !names.is_empty() => {
            names.iter().filter_map(Value::as_str).any(|name| covers(name, domain))
        }
        _ => true,
    }
}

/// Finds the certificate for a name that carries an owner's tag.
pub(super) async fn owned(aws: &Session, domain: &str, owner: &str) -> Result<Option<String>> {
    for summary in list_certificates(aws, &[]).await? {
        if summary["DomainName"] != domain {
            continue;
        }
        let arn = summary["CertificateArn"].as_str().unwrap_or_default();
        let tags =
            optional(aws.json(&ACM, "ListTagsForCertificate", json!({"CertificateArn": arn})).await, &[])?;
        let tags = tags.as_ref().and_then(|answer| answer["Tags"].as_array());
        if tags.into_iter().flatten().any(|tag| tag["Key"] == OWNER_TAG && tag["Value"] == owner) {
            return Ok(Some(arn.to_owned()));
        }
    }
    Ok(None)
}

/// True if another certificate for the name needs the same validation record.
pub(super) async fn shares_record(aws: &Session, arn: &str, domain: &str, record: &str) -> Result<bool> {
    let apex = domain.trim_start_matches("*.");
    for summary in list_certificates(aws, &["ISSUED", "PENDING_VALIDATION"]).await? {
        let other = summary["CertificateArn"].as_str().unwrap_or_default();
        let related = may_cover(&summary, apex) || may_cover(&summary, &format!("*.{apex}"));
        if other == arn || !related {
            continue;
        }
        if let Some(found) = describe(aws, other).await?
            && found.records.iter().any(|(name, _, _)| name.eq_ignore_ascii_case(record))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_covers_one_label_and_not_the_apex() {
        assert!(covers("api.example.com", "API.example.com"));
        assert!(covers("*.example.com", "api.example.com"));
        assert!(!covers("*.example.com", "example.com"));
        assert!(!covers("*.example.com", "a.b.example.com"));
        assert!(covers("*.example.com", "*.example.com"));
        assert!(!covers("*.com", "*.example.com"));
    }

    #[test]
    fn certificate_past_its_end_is_expired() {
        let until = |not_after: Value| {
            Certificate::of(
                &json!({"Status": "ISSUED", "DomainName": "a.example.com", "NotAfter": not_after}),
            )
        };
        assert!(until(json!(1_000_000_000)).is_expired());
        assert!(!until(json!(9_000_000_000_i64)).is_expired());
        assert!(!until(Value::Null).is_expired());
    }

    #[test]
    fn issued_then_exact_then_latest_is_preferred() {
        let certificate = |status: &str, name: &str, not_after: i64| {
            Certificate::of(&json!({"Status": status, "DomainName": name, "NotAfter": not_after}))
        };
        let domain = "a.example.com";
        let of = |certificate: &Certificate| preference(certificate, domain);
        let exact = certificate("ISSUED", domain, 10);
        assert!(of(&exact) > of(&certificate("ISSUED", "*.example.com", 99)));
        assert!(of(&exact) > of(&certificate("PENDING_VALIDATION", domain, 99)));
        assert!(of(&exact) < of(&certificate("ISSUED", domain, 11)));
    }
}
