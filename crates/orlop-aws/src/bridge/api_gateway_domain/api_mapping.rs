//! Phase API_MAPPING: the domain name leads to the API's stage.

use serde_json::{Value, json};

use super::{API, API_MAPPING, domain, domain_name};
use crate::{
    bridge::{
        step::{Cleaned, Step},
        work::{Child, Work, child_name, missing_field},
    },
    client::{Result, optional},
    kind::at,
    kinds::apigatewayv2::{call, list},
};

/// Requeue delay while the mapping does not exist.
const WAIT_SECONDS: u64 = 15;

/// Reads the mapping of a domain's root.
async fn root(work: &Work<'_>, domain: &str) -> Result<Option<Value>> {
    let all = list(work.aws, "GetApiMappings", &["domainnames", domain, "apimappings"]).await;
    let all = optional(all, &[])?.unwrap_or_default();
    Ok(all.into_iter().find(|mapping| mapping["apiMappingKey"].as_str().unwrap_or_default().is_empty()))
}

pub(super) async fn run(work: &mut Work<'_>) -> Result<Step> {
    let domain = domain(work);
    let name = child_name(&domain);
    let api = work.spec("apiRef.name").ok_or_else(|| missing_field("apiRef.name"))?.to_owned();
    let namespace = work.spec("apiRef.namespace").map(str::to_owned);
    let api = match work.reference(API, namespace.as_deref(), &api).await? {
        Child::Is(api) => api,
        Child::Blocked(step) => return Ok(step),
    };
    let Some(id) = at(&api, "status.apiID").and_then(Value::as_str) else {
        let text = "resource not ready: the API has no status.apiID";
        return Ok(Step::wait(WAIT_SECONDS, "InProgress", text));
    };
    let stage = work.spec("stage").unwrap_or("$default").to_owned();
    let found = root(work, &domain).await?;
    let id_of = |mapping: &Value| mapping["apiMappingId"].as_str().unwrap_or_default().to_owned();
    let right = |mapping: &Value| mapping["apiId"] == id && mapping["stage"] == stage.as_str();
    let wrong = found.as_ref().filter(|mapping| !right(mapping));
    if let Some(wrong) = wrong {
        // A mapping has no tags; it is ours if its domain name is.
        let owned = domain_name::read(work, &domain).await?;
        if !owned.is_some_and(|owned| domain_name::is_ours(work, &owned)) && !work.may_adopt() {
            let text =
                format!("the mapping of {domain} leads to API {} stage {}", wrong["apiId"], wrong["stage"]);
            return Ok(Step::refused("MappingConflict", text.replace('"', "")));
        }
        let segments = ["domainnames", &domain, "apimappings", &id_of(wrong)];
        let body = json!({"apiId": id, "stage": stage, "apiMappingKey": ""});
        call(work.aws, "UpdateApiMapping", "PATCH", &segments, Some(body)).await?;
    }
    let adopt = found.as_ref().map(|found| json!({"apiMappingID": id_of(found), "domainName": domain}));
    let spec = json!({"apiID": id, "domainName": domain, "stage": stage});
    let child = match work.apply_child(API_MAPPING, &name, adopt, spec).await? {
        Child::Is(child) => child,
        Child::Blocked(step) => return Ok(step),
    };
    match found {
        Some(found) => {
            work.status["apiMappingId"] = json!(id_of(&found));
            Ok(Step::done("Ready", "APIMapping is ready"))
        }
        None => work.await_child(API_MAPPING, &name, &child, WAIT_SECONDS).await,
    }
}

/// The child goes first: while it exists, ACK may create the mapping again.
pub(super) async fn clean(work: &mut Work<'_>) -> Result<Cleaned> {
    let domain = domain(work);
    let name = child_name(&domain);
    if !work.delete_child(API_MAPPING, &name).await? {
        return Ok(Cleaned::wait(1, format!("APIMapping {name} is being deleted")));
    }
    let Some(found) = domain_name::read(work, &domain).await? else { return Ok(Cleaned::Gone) };
    let Some(mapping) = root(work, &domain).await? else { return Ok(Cleaned::Gone) };
    let id = mapping["apiMappingId"].as_str().unwrap_or_default();
    if domain_name::is_ours(work, &found) || work.status("apiMappingId") == Some(id) {
        let segments = ["domainnames", &domain, "apimappings", id];
        optional(call(work.aws, "DeleteApiMapping", "DELETE", &segments, None).await, &[])?;
    }
    Ok(Cleaned::Gone)
}
