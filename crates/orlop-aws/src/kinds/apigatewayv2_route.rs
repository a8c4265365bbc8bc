//! apigatewayv2 Route.

use std::sync::LazyLock;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    apigatewayv2::{ACTIONS, Collection, body},
    apigatewayv2_stage::API,
};
use crate::{
    client::{APIGATEWAYV2, Result, Session},
    fields::{Difference, parse},
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

static ROUTES: Collection = Collection {
    about: &ABOUT,
    parent: ("apis", "apiID"),
    name: "routes",
    id: ("routeID", "routeId"),
    get: "GetRoute",
    list: "GetRoutes",
    create: "CreateRoute",
    update: "UpdateRoute",
    delete: "DeleteRoute",
};

#[async_trait]
impl Kind for Route {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>> {
        ROUTES.read(aws, object).await
    }

    async fn create(&self, aws: &Session, object: &Object) -> Result<Value> {
        ROUTES.create(aws, object, body(&ABOUT, object)).await
    }

    /// A key has one route in an API.
    async fn find(&self, aws: &Session, object: &Object) -> Result<Option<Value>> {
        ROUTES.find(aws, object, |route| route["routeKey"] == object.need("routeKey")).await
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
        ROUTES.update(aws, object, body).await
    }

    async fn delete(&self, aws: &Session, object: &Object, _: &Observed) -> Result<Deletion> {
        ROUTES.delete(aws, object).await?;
        Ok(Deletion::Gone)
    }
}
