//! Phase DOMAIN_NAME: API Gateway's custom domain name.

use serde_json::{Value, json};

use super::{DOMAIN_NAME, domain};
use crate::{
    bridge::{
        step::{Cleaned, Step},
        work::{Child, OWNER_TAG, Work, child_name, explain, missing_field},
    },
    client::{Result, optional},
    kind::UID_TAG,
    kinds::apigatewayv2::call,
};

/// Requeue delay while the domain name is not available.
const WAIT_SECONDS: u64 = 15;

/// Reads a domain name; `None` if this account and region have none.
pub(super) async fn read(work: &Work<'_>, domain: &str) -> Result<Option<Value>> {
    optional(call(work.aws, "GetDomainName", "GET", &["domainnames", domain], None).await, &[])
}

/// True if a domain name was created for this object, or for an earlier one of the same name.
pub(super) fn is_ours(work: &Work<'_>, found: &Value) -> bool {
    found["tags"][OWNER_TAG] == work.owner.as_str()
}

fn configuration(certificate: &str) -> Value {
    json!({"certificateARN": certificate, "endpointType": "REGIONAL", "securityPolicy": "TLS_1_2"})
}

pub(super) async fn run(work: &mut Work<'_>) -> Result<Step> {
    let domain = domain(work);
    let name = child_name(&domain);
    let certificate =
        work.status("certificateArn").ok_or_else(|| missing_field("certificateArn"))?.to_owned();
    let found = read(work, &domain).await?;
    let existing = work.child(DOMAIN_NAME, &name).await?;
    let mut adopt = None;
    if let Some(found) = &found {
        let of_child =
            existing.as_ref().is_some_and(|child| found["tags"][UID_TAG] == child["metadata"]["uid"]);
        if !is_ours(work, found) && !of_child && !work.may_adopt() {
            let text =
                format!("domain name {domain} exists and was not made by this object: {}", owner_of(found));
            return Ok(Step::refused("DomainNameConflict", text));
        }
        adopt = Some(json!({"domainName": domain}));
    }
    let spec = json!({"domainName": domain, "domainNameConfigurations": [configuration(&certificate)],
        "tags": {OWNER_TAG: work.owner}});
    let child = match work.apply_child(DOMAIN_NAME, &name, adopt, spec).await? {
        Child::Is(child) => child,
        Child::Blocked(step) => return Ok(step),
    };
    let Some(found) = found else { return absent(work, &domain, &name, &child).await };
    let configured = &found["domainNameConfigurations"][0];
    let kind = configured["endpointType"].as_str().unwrap_or("REGIONAL");
    if kind != "REGIONAL" {
        let text = format!("domain name {domain} is {kind}, not REGIONAL");
        return Ok(Step::refused("DomainNameConflict", text));
    }
    if configured["certificateArn"] != certificate.as_str() {
        // ACK would see it hours later.
        let body = json!({"domainNameConfigurations": [{"certificateArn": certificate, "endpointType": "REGIONAL",
            "securityPolicy": "TLS_1_2"}]});
        call(work.aws, "UpdateDomainName", "PATCH", &["domainnames", &domain], Some(body)).await?;
        let text = format!("domain name {domain} gets certificate {certificate}");
        return Ok(Step::wait(WAIT_SECONDS, "InProgress", text));
    }
    let state = configured["domainNameStatus"].as_str().unwrap_or("AVAILABLE");
    if state != "AVAILABLE" {
        let said = configured["domainNameStatusMessage"].as_str().unwrap_or_default();
        let text = format!("resource not ready: domain name {domain} is {state} {said}");
        return Ok(Step::wait(WAIT_SECONDS, "InProgress", text.trim_end()));
    }
    let Some(endpoint) = configured["apiGatewayDomainName"].as_str() else {
        let text = format!("resource not ready: domain name {domain} has no endpoint yet");
        return Ok(Step::wait(WAIT_SECONDS, "InProgress", text));
    };
    work.status["domainNameEndpoint"] = json!(endpoint);
    work.status["hostedZoneId"] = configured["hostedZoneId"].clone();
    Ok(Step::done("Ready", "DomainName is ready"))
}

fn owner_of(found: &Value) -> String {
    match found["tags"][OWNER_TAG].as_str() {
        Some(owner) => format!("it belongs to {owner}"),
        None => "set services.k8s.aws/adoption-policy: adopt-or-create to take it over".to_owned(),
    }
}

/// Decides by the child, whose domain name is not there.
async fn absent(work: &mut Work<'_>, domain: &str, name: &str, child: &Value) -> Result<Step> {
    let said = explain(child);
    if said.contains("ConflictException") {
        let text = format!("domain name {domain} is held by another account or region{said}");
        return Ok(Step::refused("DomainNameConflict", text));
    }
    work.await_child(DOMAIN_NAME, name, child, WAIT_SECONDS).await
}

/// The child goes first: while it exists, ACK may create the domain name again.
pub(super) async fn clean(work: &mut Work<'_>) -> Result<Cleaned> {
    let domain = domain(work);
    let name = child_name(&domain);
    let child = work.child(DOMAIN_NAME, &name).await?;
    let child_uid = child.as_ref().map(|child| child["metadata"]["uid"].clone());
    let found = read(work, &domain).await?;
    if !work.delete_child(DOMAIN_NAME, &name).await? {
        return Ok(Cleaned::wait(1, format!("DomainName {name} is being deleted")));
    }
    let Some(found) = found else {
        // Looked at before the child went: ACK may have been at it.
        return Ok(match child {
            Some(_) => Cleaned::wait(0, format!("DomainName {name} was deleted")),
            None => Cleaned::Gone,
        });
    };
    let of_child = child_uid.is_some_and(|uid| found["tags"][UID_TAG] == uid);
    if !is_ours(work, &found) && !of_child {
        return Ok(Cleaned::Gone);
    }
    optional(call(work.aws, "DeleteDomainName", "DELETE", &["domainnames", &domain], None).await, &[])?;
    Ok(Cleaned::Gone)
}
