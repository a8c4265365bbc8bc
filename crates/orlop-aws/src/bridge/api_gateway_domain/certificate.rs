//! Phase CERTIFICATE: discover, create or use a certificate, and have it validated by DNS.

use std::time::Duration;

use serde_json::{Value, json};

use super::{CERTIFICATE, domain};
use crate::{
    bridge::{
        certificates::{self, Certificate},
        records,
        step::{Cleaned, Step},
        work::{Child, OWNER_TAG, Work, child_name, explain, missing_field, status},
    },
    client::{ACM, Result, optional},
    conditions::SYNCED,
    kind::at,
};

/// Requeue delay while the certificate is not issued.
const PENDING_SECONDS: u64 = 30;

/// A certificate, or the step that the phase ends with.
enum Found {
    Certificate(Certificate),
    Step(Step),
}

pub(super) async fn run(work: &mut Work<'_>) -> Result<Step> {
    let found = match work.spec("certificateStrategy").unwrap_or("discover") {
        "use-arn" => use_arn(work).await?,
        "create" => create(work).await?,
        _ => discover(work).await?,
    };
    match found {
        Found::Certificate(certificate) => evaluate(work, certificate).await,
        Found::Step(step) => Ok(step),
    }
}

/// Takes the certificate in status as long as it is valid; discovers one otherwise.
async fn discover(work: &mut Work<'_>) -> Result<Found> {
    let domain = domain(work);
    if let Some(arn) = work.status("certificateArn").map(str::to_owned)
        && let Some(known) = certificates::describe(work.aws, &arn).await?
        && known.status == "ISSUED"
        && !known.is_expired()
        && known.covers(&domain)
    {
        return Ok(Found::Certificate(known));
    }
    Ok(match certificates::discover(work.aws, &domain).await? {
        Some(certificate) => Found::Certificate(certificate),
        None => {
            let message = format!(
                "certificate not found: none of this account and region covers {domain}; next check in {PENDING_SECONDS} s"
            );
            Found::Step(Step::Missing { reason: "WaitingForCertificate", message })
        }
    })
}

async fn use_arn(work: &mut Work<'_>) -> Result<Found> {
    let arn = work.spec("certificateArn").ok_or_else(|| missing_field("certificateArn"))?.to_owned();
    let region = arn.split(':').nth(3).unwrap_or_default();
    if region != work.aws.region {
        let text = format!("configuration error: certificate {arn} is not in region {}", work.aws.region);
        return Ok(Found::Step(Step::refused("Error", text)));
    }
    // ACM answers the same to an ARN that is none.
    Ok(match certificates::describe(work.aws, &arn).await {
        Ok(Some(certificate)) => Found::Certificate(certificate),
        Ok(None) => Found::Step(Step::refused("Error", format!("certificate not found: {arn}"))),
        Err(failure) if failure.is(&["InvalidArnException", "ValidationException"]) => {
            Found::Step(Step::refused("Error", format!("certificate not found: {arn}: {failure}")))
        }
        Err(failure) => return Err(failure),
    })
}

async fn create(work: &mut Work<'_>) -> Result<Found> {
    let domain = domain(work);
    let name = child_name(&domain);
    let existing = work.child(CERTIFICATE, &name).await?;
    // One left over from an earlier object of this name.
    let leftover = match existing {
        Some(_) => None,
        None => certificates::owned(work.aws, &domain, &work.owner).await?,
    };
    let adopt = leftover.map(|arn| json!({"arn": arn}));
    let tags = json!([{"key": OWNER_TAG, "value": work.owner}]);
    let spec = json!({"domainName": domain, "tags": tags});
    let child = match work.apply_child(CERTIFICATE, &name, adopt, spec).await? {
        Child::Is(child) => child,
        Child::Blocked(step) => return Ok(Found::Step(step)),
    };
    let Some(arn) = arn_of(&child) else {
        let text =
            format!("Waiting for ACK Certificate to provide ARN: Certificate {name}{}", explain(&child));
        return Ok(Found::Step(Step::wait(PENDING_SECONDS, "Creating", text)));
    };
    Ok(match certificates::describe(work.aws, &arn).await? {
        Some(certificate) => Found::Certificate(certificate),
        // It was deleted out of band, which ACK's resync may see hours later: a new child creates a new one.
        None if status(&child, SYNCED) == Some("True") => {
            work.delete_child(CERTIFICATE, &name).await?;
            let text = format!("certificate {arn} is gone and will be requested again");
            Found::Step(Step::wait(1, "Creating", text))
        }
        None => {
            let text = format!("Waiting for certificate {arn} to appear");
            Found::Step(Step::wait(PENDING_SECONDS, "Creating", text))
        }
    })
}

fn arn_of(child: &Value) -> Option<String> {
    at(child, "status.ackResourceMetadata.arn")
        .and_then(Value::as_str)
        .filter(|arn| !arn.is_empty())
        .map(str::to_owned)
}

/// Decides by the state of the certificate.
async fn evaluate(work: &mut Work<'_>, certificate: Certificate) -> Result<Step> {
    let domain = domain(work);
    work.status["certificateArn"] = json!(certificate.arn);
    work.status["certificateStatus"] = json!(certificate.status);
    if !certificate.covers(&domain) {
        let text = format!("configuration error: certificate {} does not cover {domain}", certificate.arn);
        return Ok(Step::refused("Error", text));
    }
    match certificate.status.as_str() {
        "ISSUED" if certificate.is_expired() => {
            let text = format!("certificate not issued: {} is EXPIRED", certificate.arn);
            Ok(Step::refused("Error", text))
        }
        "ISSUED" => Ok(Step::done("Issued", "Certificate is ISSUED")),
        "PENDING_VALIDATION" => validate(work, &certificate).await,
        other => {
            let text =
                format!("certificate not issued: {} is {other} {}", certificate.arn, certificate.failure);
            Ok(Step::refused("Error", text.trim_end()))
        }
    }
}

/// Writes the validation records of a pending certificate.
async fn validate(work: &mut Work<'_>, certificate: &Certificate) -> Result<Step> {
    if certificate.records.is_empty() {
        let text = format!("Waiting for ACM to provide the validation records of {}", certificate.arn);
        return Ok(pending(text));
    }
    let mut noted = Vec::new();
    for (name, kind, value) in &certificate.records {
        let known = work.status["validationRecords"].as_array().into_iter().flatten();
        let known = known
            .filter(|record| record["name"] == name.as_str())
            .find_map(|record| record["hostedZoneID"].as_str());
        let zone = match known.map(str::to_owned) {
            Some(zone) => zone,
            None => match records::zone_of(work.aws, name).await? {
                Some(zone) => zone.id,
                None => {
                    let text = format!("hosted zone not found: no public zone holds {name}");
                    return Ok(Step::refused("HostedZoneNotFound", text));
                }
            },
        };
        // The name is ACM's own; an older value of it is obsolete.
        records::ensure(work.aws, &zone, &[records::cname(name, value, 300)], |_| true).await?;
        noted.push(json!({"name": name, "type": kind, "value": value, "hostedZoneID": zone}));
    }
    let names: Vec<&str> = certificate.records.iter().map(|(name, _, _)| name.as_str()).collect();
    let text = format!("Certificate is pending DNS validation by {}", names.join(", "));
    work.status["validationRecords"] = Value::Array(noted);
    Ok(pending(text))
}

fn pending(text: String) -> Step {
    match Step::wait(PENDING_SECONDS, "PendingValidation", text) {
        Step::Wait { after, reason, message, .. } => Step::Wait { after, reason, message, pending: true },
        other => other,
    }
}

/// Only a certificate that this object had created is deleted, and its validation records if no other needs them. A
/// certificate of others still needs the records for its renewal.
pub(super) async fn clean(work: &mut Work<'_>) -> Result<Cleaned> {
    if work.spec("certificateStrategy") != Some("create") {
        return Ok(Cleaned::Gone);
    }
    let domain = domain(work);
    let name = child_name(&domain);
    // The ARN is written down before the child that knows it goes.
    if let Some(child) = work.child(CERTIFICATE, &name).await?
        && let Some(arn) = arn_of(&child)
        && work.status("certificateArn") != Some(&arn)
    {
        work.status["certificateArn"] = json!(arn);
        return Ok(Cleaned::Wait { after: Duration::ZERO, message: format!("deleting certificate {arn}") });
    }
    if !work.delete_child(CERTIFICATE, &name).await? {
        return Ok(Cleaned::wait(1, format!("Certificate {name} is being deleted")));
    }
    let known = match work.status("certificateArn").map(str::to_owned) {
        Some(arn) => certificates::describe(work.aws, &arn).await?,
        None => None,
    };
    let certificate = match known {
        Some(certificate) => certificate,
        // Its ARN may have been lost with a killed controller; the tag identifies it.
        None => match certificates::owned(work.aws, &domain, &work.owner).await? {
            Some(arn) => match certificates::describe(work.aws, &arn).await? {
                Some(certificate) => certificate,
                None => return Ok(Cleaned::Gone),
            },
            None => return Ok(Cleaned::Gone),
        },
    };
    let elsewhere = |user: &&String| !user.ends_with(&format!("/domainnames/{domain}"));
    if let Some(user) = certificate.in_use_by.iter().find(elsewhere) {
        return Ok(Cleaned::Left(format!("certificate {} is in use by {user}", certificate.arn)));
    }
    for (record, _, value) in &certificate.records {
        if certificates::shares_record(work.aws, &certificate.arn, &domain, record).await? {
            continue;
        }
        let zone = records::zone_of(work.aws, record).await?;
        if let Some(zone) = zone {
            let value = value.trim_end_matches('.').to_lowercase();
            records::remove(work.aws, &zone.id, record, |found| records::value_of(found) == value).await?;
        }
    }
    let body = json!({"CertificateArn": certificate.arn});
    match optional(work.aws.json(&ACM, "DeleteCertificate", body).await, &[]) {
        // API Gateway lets go of it some time after the domain name is gone.
        Err(failure) if failure.is(&["ResourceInUseException"]) => {
            Ok(Cleaned::wait(15, format!("certificate {} is still in use", certificate.arn)))
        }
        other => other.map(|_| Cleaned::Gone),
    }
}
