//! apigatewayv2 APIMapping.

use std::sync::LazyLock;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    apigatewayv2::{ACTIONS, call, list},
    apigatewayv2_stage::API,
};
use crate::{
    client::{APIGATEWAYV2, Failure, Result, Session, optional},
    fields::{Case, Difference, from_json, parse},
    kind::{About, Deletion, Kind, Object, Observed, Reference, Tags},
};

#[derive(Debug)]
pub(crate) struct ApiMapping;

static ABOUT: About = About {
    service: &APIGATEWAYV2,
    kind: "APIMapping",
    plural: "apimappings",
    spec: LazyLock::new(|| parse("apiID apiMappingKey~ apiRef@ domainName^ domainRef@ stage!")),
    status: LazyLock::new(|| parse("apiMappingID")),
    adoption: &[("apiMappingID", "status.apiMappingID"), ("domainName", "spec.domainName")],
    identity: &["domainName"],
    references: &[
        API,
        Reference {
            field: "domainName",
            reference: "domainRef",
            target: ("apigatewayv2", "DomainName"),
            value: "spec.domainName",
            prefix: "",
            required: true,
            list: false,
        },
    ],
    terminal: &["BadRequestException"],
    late: &[],
    tags: Tags::None,
    resync: None,
    actions: ACTIONS,
    columns: &[],
};

fn body(object: &Object) -> Value {
    json!({"apiId": object.need("apiID"), "stage": object.need("stage"),
        "apiMappingKey": object.spec("apiMappingKey").unwrap_or_default()})
}

#[async_trait]
impl Kind for ApiMapping {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>> {
        let (domain, Some(id)) = (object.need("domainName"), object.status("apiMappingID")) else {
            return Ok(None);
        };
        let segments = ["domainnames", domain, "apimappings", id];
        let read = call(aws, "GetApiMapping", "GET", &segments, None).await;
        let Some(answer) = optional(read, &[])? else { return Ok(None) };
        let mut spec = from_json(&ABOUT.spec, &answer, Case::Camel);
        spec["domainName"] = json!(domain);
        let status = from_json(&ABOUT.status, &answer, Case::Camel);
        Ok(Some(Observed { spec, status, ..Observed::default() }))
    }

    async fn create(&self, aws: &Session, object: &Object) -> Result<Value> {
        let segments = ["domainnames", object.need("domainName"), "apimappings"];
        let answer = call(aws, "CreateApiMapping", "POST", &segments, Some(body(object))).await?;
        Ok(json!({"apiMappingID": answer["apiMappingId"]}))
    }

    /// A key has one mapping in a domain.
    async fn find(&self, aws: &Session, object: &Object) -> Result<Option<Value>> {
        let segments = ["domainnames", object.need("domainName"), "apimappings"];
        let all = list(aws, "GetApiMappings", &segments).await?;
        let key = object.spec("apiMappingKey").unwrap_or_default();
        let same = all.iter().find(|mapping| {
            let id = mapping["apiMappingId"].as_str().unwrap_or_default();
            mapping["apiMappingKey"].as_str().unwrap_or_default() == key
                && mapping["apiId"] == object.need("apiID")
                && !object.claimed.iter().any(|claimed| claimed == id)
        });
        Ok(same.map(|mapping| json!({"apiMappingID": mapping["apiMappingId"]})))
    }

    fn translate(&self, failure: Failure) -> Failure {
        let text = failure.to_string();
        // Its Stage may be on the way.
        let early = failure.is(&["BadRequestException"]) && text.contains("Invalid stage identifier");
        if early { Failure::wait(5, text) } else { failure }
    }

    async fn update(&self, aws: &Session, object: &Object, _: &Observed, _: &[Difference]) -> Result<()> {
        let id = object.status("apiMappingID").unwrap_or_default();
        let segments = ["domainnames", object.need("domainName"), "apimappings", id];
        call(aws, "UpdateApiMapping", "PATCH", &segments, Some(body(object))).await?;
        Ok(())
    }

    async fn delete(&self, aws: &Session, object: &Object, _: &Observed) -> Result<Deletion> {
        let id = object.status("apiMappingID").unwrap_or_default();
        let segments = ["domainnames", object.need("domainName"), "apimappings", id];
        optional(call(aws, "DeleteApiMapping", "DELETE", &segments, None).await, &[])?;
        Ok(Deletion::Gone)
    }
}
