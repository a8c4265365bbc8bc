//! apigatewayv2 Route.

use std::sync::LazyLock;

use async_trait::async_trait;
use serde_json::Value;

use super::{
    apigatewayv2::{ACTIONS, Collection, body, update_body},
    apigatewayv2_stage::API,
};
use crate::{
    client::{APIGATEWAYV2, Result, Session},
    fields::{Difference, parse},
    kind::{Deletion, Descriptor, Kind, Object, Observed, Reference, Tags},
};

#[derive(Debug)]
pub(crate) struct Route;

static DESCRIPTOR: Descriptor = Descriptor {
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
        Reference::optional(
            "authorizerID",
            "authorizerRef",
            ("apigatewayv2", "Authorizer"),
            "status.authorizerID",
        ),
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
    descriptor: &DESCRIPTOR,
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
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>> {
        ROUTES.read(aws, object).await
    }

    async fn create(&self, aws: &Session, object: &Object) -> Result<Value> {
        ROUTES.create(aws, object, body(&DESCRIPTOR, object)).await
    }

    /// A key has one route in an API.
    async fn find(&self, aws: &Session, object: &Object) -> Result<Option<Value>> {
        ROUTES.find(aws, object, |route| route["routeKey"] == object.need("routeKey")).await
    }

    async fn update(
        &self,
        aws: &Session,
        object: &Object,
        observed: &Observed,
        changed: &[Difference],
    ) -> Result<()> {
        ROUTES.update(aws, object, update_body(&DESCRIPTOR, object, observed, changed)).await
    }

    async fn delete(&self, aws: &Session, object: &Object, _: &Observed) -> Result<Deletion> {
        ROUTES.delete(aws, object).await?;
        Ok(Deletion::Gone)
    }
}
