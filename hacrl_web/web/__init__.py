"""What all apps share: errors, middleware, schemas, lists and page queries. It knows no app and no table."""
