//! apigatewayv2 Integration.

use std::sync::LazyLock;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    apigatewayv2::{ACTIONS, arn, body, call, list},
    apigatewayv2_stage::API,
};
use crate::{
    client::{APIGATEWAYV2, Failure, Result, Session, optional},
    fields::{Case, Difference, compare, from_json, parse},
    kind::{About, Deletion, Kind, Object, Observed, Reference, Tags},
};

#[derive(Debug)]
pub(crate) struct Integration;

static ABOUT: About = About {
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

#[async_trait]
impl Kind for Integration {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>> {
        let (api, Some(id)) = (object.need("apiID"), object.status("integrationID")) else { return Ok(None) };
        let read = call(aws, "GetIntegration", "GET", &["apis", api, "integrations", id], None).await;
        let Some(answer) = optional(read, &[])? else { return Ok(None) };
        let mut spec = from_json(&ABOUT.spec, &answer, Case::Camel);
        spec["apiID"] = json!(api);
        let status = from_json(&ABOUT.status, &answer, Case::Camel);
        let arn = arn(aws, &format!("/apis/{api}/integrations/{id}"));
        Ok(Some(Observed { spec, status, arn: Some(arn), ..Observed::default() }))
    }

    async fn create(&self, aws: &Session, object: &Object) -> Result<Value> {
        let segments = ["apis", object.need("apiID"), "integrations"];
        let answer = call(aws, "CreateIntegration", "POST", &segments, Some(body(&ABOUT, object))).await?;
        Ok(json!({"integrationID": answer["integrationId"]}))
    }

    /// Integrations have neither tags nor a key of their own: one that is as wanted and that no other object holds is
    /// the one that an earlier pass made.
    async fn find(&self, aws: &Session, object: &Object) -> Result<Option<Value>> {
        let all = list(aws, "GetIntegrations", &["apis", object.need("apiID"), "integrations"]).await?;
        let ours = all.iter().find(|integration| {
            let id = integration["integrationId"].as_str().unwrap_or_default();
            let spec = from_json(&ABOUT.spec, integration, Case::Camel);
            !object.claimed.iter().any(|claimed| claimed == id)
                && compare(&ABOUT.spec, &object.spec, &spec).is_empty()
        });
        Ok(ours.map(|integration| json!({"integrationID": integration["integrationId"]})))
    }

    async fn update(
        &self,
        aws: &Session,
        object: &Object,
        _: &Observed,
        changed: &[Difference],
    ) -> Result<()> {
        let mut body = body(&ABOUT, object);
        for difference in changed {
            let absent = match difference.field.as_str() {
                "description" => ("description", json!("")),
                "credentialsARN" => ("credentialsArn", json!("")),
                "requestParameters" => ("requestParameters", json!({})),
                "requestTemplates" => ("requestTemplates", json!({})),
                _ => continue,
            };
            if body.get(absent.0).is_none() {
                body[absent.0] = absent.1;
            }
        }
        let id = object.status("integrationID").unwrap_or_default();
        let segments = ["apis", object.need("apiID"), "integrations", id];
        call(aws, "UpdateIntegration", "PATCH", &segments, Some(body)).await?;
        Ok(())
    }

    async fn delete(&self, aws: &Session, object: &Object, _: &Observed) -> Result<Deletion> {
        let id = object.status("integrationID").unwrap_or_default();
        let segments = ["apis", object.need("apiID"), "integrations", id];
        match optional(call(aws, "DeleteIntegration", "DELETE", &segments, None).await, &[]) {
            // A route still targets it, and is probably going too.
            Err(failure) if failure.is(&["ConflictException"]) => Err(Failure::wait(2, failure.to_string())),
            other => other.map(|_| Deletion::Gone),
        }
    }
}
