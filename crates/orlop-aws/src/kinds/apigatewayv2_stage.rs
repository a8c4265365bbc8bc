//! apigatewayv2 Stage.

use std::sync::LazyLock;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::apigatewayv2::{ACTIONS, arn, body, call, sync_tags, update_body, without_empty_entries};
use crate::{
    client::{APIGATEWAYV2, Result, Session, optional},
    fields::{Case, Difference, from_json, parse},
    kind::{Deletion, Descriptor, Kind, Object, Observed, Reference, Tags, differs},
};

#[derive(Debug)]
pub(crate) struct Stage;

/// The API that a stage, route, integration or mapping belongs to.
pub(super) const API: Reference = Reference {
    field: "apiID",
    reference: "apiRef",
    target: ("apigatewayv2", "API"),
    value: "status.apiID",
    prefix: "",
    required: true,
    list: false,
};

static DESCRIPTOR: Descriptor = Descriptor {
    service: &APIGATEWAYV2,
    kind: "Stage",
    plural: "stages",
    spec: LazyLock::new(|| {
        parse(
            "accessLogSettings~{destinationARN~ format~} apiID^ apiRef@ autoDeploy:b~ clientCertificateID~
             defaultRouteSettings{dataTraceEnabled:b detailedMetricsEnabled:b loggingLevel throttlingBurstLimit:i
                 throttlingRateLimit:n}
             deploymentID deploymentRef@ description~
             routeSettings~{}{dataTraceEnabled:b detailedMetricsEnabled:b loggingLevel throttlingBurstLimit:i
                 throttlingRateLimit:n}
             stageName! stageVariables~{} tags~{}",
        )
    }),
    status: LazyLock::new(|| {
        parse("apiGatewayManaged:b createdDate:t lastDeploymentStatusMessage lastUpdatedDate:t")
    }),
    adoption: &[("apiID", "spec.apiID"), ("stageName", "spec.stageName")],
    identity: &["apiID", "stageName"],
    references: &[
        API,
        Reference::optional(
            "deploymentID",
            "deploymentRef",
            ("apigatewayv2", "Deployment"),
            "status.deploymentID",
        ),
    ],
    terminal: &["BadRequestException"],
    late: &[],
    tags: Tags::Map("tags"),
    resync: None,
    actions: ACTIONS,
    columns: &[],
};

/// Drops the deployment of a stage that deploys by itself.
fn without_deployment(object: &Object, mut body: Value) -> Value {
    let deploys = object.spec["autoDeploy"].as_bool().unwrap_or_default();
    if let Some(fields) = body.as_object_mut()
        && deploys
    {
        fields.remove("deploymentId");
    }
    body
}

/// Removes settings that left the spec: UpdateStage cannot remove them.
async fn remove_settings(
    aws: &Session,
    object: &Object,
    observed: &Observed,
    changed: &[Difference],
) -> Result<()> {
    let stage = ["apis", object.need("apiID"), "stages", object.need("stageName")];
    if differs(changed, "accessLogSettings") && object.spec.get("accessLogSettings").is_none() {
        let segments = [stage.as_slice(), &["accesslogsettings"]].concat();
        call(aws, "DeleteAccessLogSettings", "DELETE", &segments, None).await?;
    }
    if differs(changed, "routeSettings") {
        for key in observed.spec["routeSettings"].as_object().into_iter().flatten().map(|(key, _)| key) {
            if object.spec["routeSettings"].get(key).is_none() {
                let segments = [stage.as_slice(), &["routesettings", key]].concat();
                optional(call(aws, "DeleteRouteSettings", "DELETE", &segments, None).await, &[])?;
            }
        }
    }
    Ok(())
}

#[async_trait]
impl Kind for Stage {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>> {
        let (api, name) = (object.need("apiID"), object.need("stageName"));
        let read = call(aws, "GetStage", "GET", &["apis", api, "stages", name], None).await;
        let Some(answer) = optional(read, &[])? else { return Ok(None) };
        let mut spec = from_json(&DESCRIPTOR.spec, &answer, Case::Camel);
        without_empty_entries(&DESCRIPTOR, &mut spec);
        spec["apiID"] = json!(api);
        let mut status = from_json(&DESCRIPTOR.status, &answer, Case::Camel);
        if spec["autoDeploy"].as_bool() == Some(true)
            && let Some(fields) = status.as_object_mut()
        {
            // It moves with each deployment, which is no change of the stage.
            fields.remove("lastUpdatedDate");
        }
        let arn = arn(aws, &format!("/apis/{api}/stages/{name}"));
        Ok(Some(Observed { spec, status, arn: Some(arn), ..Observed::default() }))
    }

    async fn create(&self, aws: &Session, object: &Object) -> Result<Value> {
        call(
            aws,
            "CreateStage",
            "POST",
            &["apis", object.need("apiID"), "stages"],
            Some(without_deployment(object, body(&DESCRIPTOR, object))),
        )
        .await?;
        Ok(json!({}))
    }

    fn refine(&self, object: &Object, _: &Observed, changed: &mut Vec<Difference>) {
        let deploys = object.spec["autoDeploy"].as_bool().unwrap_or_default();
        changed.retain(|difference| difference.field != "deploymentID" || !deploys);
    }

    async fn update(
        &self,
        aws: &Session,
        object: &Object,
        observed: &Observed,
        changed: &[Difference],
    ) -> Result<()> {
        let (api, name) = (object.need("apiID"), object.need("stageName"));
        let arn = arn(aws, &format!("/apis/{api}/stages/{name}"));
        if sync_tags(aws, &arn, object, observed, changed).await? {
            remove_settings(aws, object, observed, changed).await?;
            let mut body = without_deployment(object, update_body(&DESCRIPTOR, object, observed, changed));
            if let Some(fields) = body.as_object_mut() {
                fields.retain(|name, _| !["stageName", "tags"].contains(&name.as_str()));
            }
            call(aws, "UpdateStage", "PATCH", &["apis", api, "stages", name], Some(body)).await?;
        }
        Ok(())
    }

    async fn delete(&self, aws: &Session, object: &Object, _: &Observed) -> Result<Deletion> {
        let segments = ["apis", object.need("apiID"), "stages", object.need("stageName")];
        optional(call(aws, "DeleteStage", "DELETE", &segments, None).await, &[])?;
        Ok(Deletion::Gone)
    }
}
