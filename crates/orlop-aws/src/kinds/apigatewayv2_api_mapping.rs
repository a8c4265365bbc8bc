//! apigatewayv2 APIMapping.

use std::sync::LazyLock;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    apigatewayv2::{ACTIONS, Collection},
    apigatewayv2_stage::API,
};
use crate::{
    client::{APIGATEWAYV2, Failure, Result, Session},
    fields::{Difference, parse},
    kind::{Deletion, Descriptor, Kind, Object, Observed, Reference, Tags},
};

#[derive(Debug)]
pub(crate) struct ApiMapping;

static DESCRIPTOR: Descriptor = Descriptor {
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

static MAPPINGS: Collection = Collection {
    descriptor: &DESCRIPTOR,
    parent: ("domainnames", "domainName"),
    name: "apimappings",
    id: ("apiMappingID", "apiMappingId"),
    get: "GetApiMapping",
    list: "GetApiMappings",
    create: "CreateApiMapping",
    update: "UpdateApiMapping",
    delete: "DeleteApiMapping",
};

fn body(object: &Object) -> Value {
    json!({"apiId": object.need("apiID"), "stage": object.need("stage"),
        "apiMappingKey": object.spec("apiMappingKey").unwrap_or_default()})
}

#[async_trait]
impl Kind for ApiMapping {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>> {
        MAPPINGS.read(aws, object).await
    }

    async fn create(&self, aws: &Session, object: &Object) -> Result<Value> {
        MAPPINGS.create(aws, object, body(object)).await
    }

    /// A key has one mapping in a domain.
    async fn find(&self, aws: &Session, object: &Object) -> Result<Option<Value>> {
        let key = object.spec("apiMappingKey").unwrap_or_default();
        let is_wanted = |mapping: &Value| {
            mapping["apiMappingKey"].as_str().unwrap_or_default() == key
                && mapping["apiId"] == object.need("apiID")
        };
        MAPPINGS.find(aws, object, is_wanted).await
    }

    fn translate(&self, failure: Failure) -> Failure {
        let text = failure.to_string();
        // Its Stage may be on the way.
        let early = failure.is(&["BadRequestException"]) && text.contains("Invalid stage identifier");
        if early { Failure::wait(5, text) } else { failure }
    }

    async fn update(&self, aws: &Session, object: &Object, _: &Observed, _: &[Difference]) -> Result<()> {
        MAPPINGS.update(aws, object, body(object)).await
    }

    async fn delete(&self, aws: &Session, object: &Object, _: &Observed) -> Result<Deletion> {
        MAPPINGS.delete(aws, object).await?;
        Ok(Deletion::Gone)
    }
}
