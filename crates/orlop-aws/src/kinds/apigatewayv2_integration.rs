//! apigatewayv2 Integration.

use std::sync::LazyLock;

use async_trait::async_trait;
use serde_json::Value;

use super::{
    apigatewayv2::{ACTIONS, Collection, body, update_body},
    apigatewayv2_stage::API,
};
use crate::{
    client::{APIGATEWAYV2, Failure, Result, Session},
    fields::{Case, Difference, compare, from_json, parse},
    kind::{Deletion, Descriptor, Kind, Object, Observed, Reference, Tags},
};

#[derive(Debug)]
pub(crate) struct Integration;

static DESCRIPTOR: Descriptor = Descriptor {
    service: &APIGATEWAYV2,
    kind: "Integration",
    plural: "integrations",
    spec: LazyLock::new(|| {
        parse(
            "apiID^ apiRef@ connectionID connectionRef@ connectionType contentHandlingStrategy credentialsARN~
             description~ integrationMethod integrationSubtype integrationType! integrationURI passthroughBehavior
             payloadFormatVersion requestParameters~{} requestTemplates~{} responseParameters{}{}
             templateSelectionExpression timeoutInMillis:i tlsConfig{serverNameToVerify}",
        )
    }),
    status: LazyLock::new(|| {
        parse("apiGatewayManaged:b integrationID integrationResponseSelectionExpression")
    }),
    adoption: &[("apiID", "spec.apiID"), ("integrationID", "status.integrationID")],
    identity: &["apiID"],
    references: &[
        API,
        Reference {
            field: "connectionID",
            reference: "connectionRef",
            target: ("apigatewayv2", "VPCLink"),
            value: "status.vpcLinkID",
            prefix: "",
            required: false,
            list: false,
        },
    ],
    terminal: &["BadRequestException"],
    late: &[],
    tags: Tags::None,
    resync: None,
    actions: ACTIONS,
    columns: &[("URI", "string", ".spec.integrationURI")],
};

static INTEGRATIONS: Collection = Collection {
    descriptor: &DESCRIPTOR,
    parent: ("apis", "apiID"),
    name: "integrations",
    id: ("integrationID", "integrationId"),
    get: "GetIntegration",
    list: "GetIntegrations",
    create: "CreateIntegration",
    update: "UpdateIntegration",
    delete: "DeleteIntegration",
};

#[async_trait]
impl Kind for Integration {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>> {
        INTEGRATIONS.read(aws, object).await
    }

    async fn create(&self, aws: &Session, object: &Object) -> Result<Value> {
        INTEGRATIONS.create(aws, object, body(&DESCRIPTOR, object)).await
    }

    /// Integrations have neither tags nor a key of their own: one that is as wanted and that no other object holds is
    /// the one that an earlier pass made.
    async fn find(&self, aws: &Session, object: &Object) -> Result<Option<Value>> {
        let is_wanted = |integration: &Value| {
            let spec = from_json(&DESCRIPTOR.spec, integration, Case::Camel);
            compare(&DESCRIPTOR.spec, &object.spec, &spec).is_empty()
        };
        INTEGRATIONS.find(aws, object, is_wanted).await
    }

    async fn update(
        &self,
        aws: &Session,
        object: &Object,
        observed: &Observed,
        changed: &[Difference],
    ) -> Result<()> {
        INTEGRATIONS.update(aws, object, update_body(&DESCRIPTOR, object, observed, changed)).await
    }

    async fn delete(&self, aws: &Session, object: &Object, _: &Observed) -> Result<Deletion> {
        match INTEGRATIONS.delete(aws, object).await {
            // A route still targets it, and is probably going too.
            Err(failure) if failure.is(&["ConflictException"]) => Err(Failure::wait(2, failure.to_string())),
            other => other.map(|()| Deletion::Gone),
        }
    }
}
