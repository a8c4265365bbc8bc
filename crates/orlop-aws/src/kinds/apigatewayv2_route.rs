//! apigatewayv2 Route.

use std::sync::LazyLock;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    apigatewayv2::{ACTIONS, arn, body, call, list},
    apigatewayv2_stage::API,
};
use crate::{
    client::{APIGATEWAYV2, Result, Session, optional},
    fields::{Case, Difference, from_json, parse},
    kind::{About, Deletion, Kind, Object, Observed, Reference, Tags, differs},
};

#[derive(Debug)]
pub(crate) struct Route;

static ABOUT: About = About {
    service: &APIGATEWAYV2,
    kind: "Route",
    plural: "routes",
    spec: LazyLock::new(|| {
        parse(
            "apiID^ apiKeyRequired:b~ apiRef@ authorizationScopes~[] authorizationType~NONE authorizerID~
             authorizerRef@ modelSelectionExpression operationName~ requestModels{} requestParameters{}{required:b}
             routeKey! routeResponseSelectionExpression target~ targetRef@",
        )
    }),
    status: LazyLock::new(|| parse("apiGatewayManaged:b routeID")),
    adoption: &[("apiID", "spec.apiID"), ("routeID", "status.routeID")],
    identity: &["apiID"],
    references: &[
        API,
        Reference {
            field: "target",
            reference: "targetRef",
            target: ("apigatewayv2", "Integration"),
            value: "status.integrationID",
            prefix: "integrations/",
            required: false,
            list: false,
        },
    ],
    terminal: &["BadRequestException"],
    late: &[],
    tags: Tags::None,
    resync: None,
    actions: ACTIONS,
    columns: &[("KEY", "string", ".spec.routeKey")],
};

#[async_trait]
impl Kind for Route {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>> {
        let (api, Some(id)) = (object.need("apiID"), object.status("routeID")) else { return Ok(None) };
        let read = call(aws, "GetRoute", "GET", &["apis", api, "routes", id], None).await;
        let Some(answer) = optional(read, &[])? else { return Ok(None) };
        let mut spec = from_json(&ABOUT.spec, &answer, Case::Camel);
        spec["apiID"] = json!(api);
        let status = from_json(&ABOUT.status, &answer, Case::Camel);
        let arn = arn(aws, &format!("/apis/{api}/routes/{id}"));
        Ok(Some(Observed { spec, status, arn: Some(arn), ..Observed::default() }))
    }

    async fn create(&self, aws: &Session, object: &Object) -> Result<Value> {
        let segments = ["apis", object.need("apiID"), "routes"];
        let answer = call(aws, "CreateRoute", "POST", &segments, Some(body(&ABOUT, object))).await?;
        Ok(json!({"routeID": answer["routeId"]}))
    }

    /// A key has one route in an API.
    async fn find(&self, aws: &Session, object: &Object) -> Result<Option<Value>> {
        let all = list(aws, "GetRoutes", &["apis", object.need("apiID"), "routes"]).await?;
        let ours = all.iter().find(|route| {
            let id = route["routeId"].as_str().unwrap_or_default();
            route["routeKey"] == object.need("routeKey")
                && !object.claimed.iter().any(|claimed| claimed == id)
        });
        Ok(ours.map(|route| json!({"routeID": route["routeId"]})))
    }

    async fn update(
        &self,
        aws: &Session,
        object: &Object,
        _: &Observed,
        changed: &[Difference],
    ) -> Result<()> {
        let mut body = body(&ABOUT, object);
        for (field, absent) in [
            ("target", json!("")),
            ("operationName", json!("")),
            ("authorizationScopes", json!([])),
            ("authorizationType", json!("NONE")),
        ] {
            if differs(changed, field) && body.get(field).is_none() {
                body[field] = absent;
            }
        }
        let segments = ["apis", object.need("apiID"), "routes", object.status("routeID").unwrap_or_default()];
        call(aws, "UpdateRoute", "PATCH", &segments, Some(body)).await?;
        Ok(())
    }

    async fn delete(&self, aws: &Session, object: &Object, _: &Observed) -> Result<Deletion> {
        let segments = ["apis", object.need("apiID"), "routes", object.status("routeID").unwrap_or_default()];
        optional(call(aws, "DeleteRoute", "DELETE", &segments, None).await, &[])?;
        Ok(Deletion::Gone)
    }
}
